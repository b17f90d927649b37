package providertest

// cases returns the promises of the contract, in the order in which its methods stand there.
func cases() []testCase {
	return []testCase{
		{"plan", "Plan is pure: it answers the same ID each time, another for each name, and it is the one that Create returns", plan},
		{"plan-refuses", "Plan names what a request lacks or what cannot be honoured, as a permanent MissingField or UnsupportedField, and Create refuses it too", planRefuses},

		{"create", "Create makes an instance with the marks and an incarnation, and Get sees it run at an address", create},
		{"create-twice", "Create meets the instance that an earlier one made", createTwice},
		{"create-at-once", "the name is unique at every moment: creates at once make one instance", createAtOnce},
		{"create-meets-other-hash", "Create returns the instance that it meets with that one's own hash, and leaves it alone", createMeetsOtherHash},
		{"create-fails", "after a create that had no effect, Get says NotFound and the next Create makes the instance", createFails},
		{"create-unanswered", "after half a create the next Create meets what the first one made", createUnanswered},
		{"create-foreign-fleet", "the instance of another fleet under our name is a permanent NameTaken for Create, and not there for Get, Delete and List", createForeignFleet},
		{"create-other-uid", "the instance of another proxy under our name is a permanent NameTaken for Create, and not there for Get and Delete", createOtherUID},
		{"create-unmarked", "an instance without marks under our name is a permanent NameTaken for Create, and not there for Get, Delete and List", createUnmarked},

		{"get-never-made", "Get of what was never made is NotFound", getNeverMade},
		{"get-fails", "a backend in trouble is transient for Get, and never NotFound", getFails},
		{"get-ignores-incarnation", "Get does not compare the incarnation of the ref", getIgnoresIncarnation},

		{"delete", "a deleted instance goes, and the next one under its name has another incarnation", deleteCase},
		{"delete-never-made", "Delete of what was never made succeeds", deleteNeverMade},
		{"delete-twice", "Delete succeeds again while the instance goes and when it is gone", deleteTwice},
		{"delete-any", "a ref without incarnation means whichever instance has the ID", deleteAny},
		{"delete-late", "Delete changes nothing when the ref names another incarnation: a late delete never hits the successor", deleteLate},
		{"delete-fails", "Delete does not succeed while a backend in trouble keeps the instance", deleteFails},
		{"delete-unanswered", "after half a delete the next Delete succeeds and the instance goes", deleteUnanswered},

		{"list", "List returns every instance of this fleet as Get does, and none that is gone", list},
		{"list-fails", "a part of the backend that cannot be read fails List: it is complete or an error", listFails},

		{"check", "every target of a healthy backend is ready, and each Check has the same ones, whatever instances there are", checkCase},
		{"check-changes-nothing", "Check changes no instance", checkChangesNothing},
		{"check-at-once", "Check may be called concurrently with everything else, and disturbs no other call", checkAtOnce},
		{"check-fails", "Check of a backend in trouble has a target that is not ready, with a reason that stays, and all the others", checkFails},
		{"check-ends", "Check ends by its context, before Run and after it as well, with a verdict on every target", checkEnds},
		{"check-hangs", "Check ends by its context while the backend hangs, with reason Timeout", checkHangs},

		{"canceled", "a call whose context was canceled sends nothing and is an error of class canceled", canceled},
		{"deadline-passed", "a call whose deadline has passed sends nothing and is transient", deadlinePassed},
		{"canceled-under-way", "a call ends promptly when its context is canceled while the backend hangs, with class canceled", canceledUnderWay},
		{"without-run", "calls that come before Run or after it still end by their context", withoutRun},

		{"many-at-once", "all methods may be called concurrently, for many instances", manyAtOnce},
		{"lag", "while reads lag, Create makes no second instance, and a name whose owner cannot be seen yet is transient", lag},
		{"restart", "when the provider is opened again, instances that outlive it are the same, and those that do not or were deleted are NotFound", restart},
		{"secrets", "no secret of a request is in an error or in an instance", secrets},
		{"delays", "Delays are not negative, and a backend with a lag gives a call time to be sent", delays},
	}
}
