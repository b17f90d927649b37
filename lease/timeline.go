package lease

import "time"

// timed is something that falls due at a moment.
type timed interface {
	due() time.Time
	// place is where a timeline keeps its own note of where it has put the thing: 1 for the first place, 0 for not in it.
	place() *int
}

// timeline is a heap of things by the moment at which they fall due. A thing is in one timeline at most.
type timeline[T timed] struct{ things []T }

// first returns what falls due first, or false if the timeline is empty.
func (t *timeline[T]) first() (thing T, ok bool) {
	if len(t.things) == 0 {
		return thing, false
	}
	return t.things[0], true
}

// Len is the number of things.
func (t *timeline[T]) Len() int { return len(t.things) }

// put adds a thing, or moves it if it is there already and its moment has changed.
func (t *timeline[T]) put(thing T) {
	at := *thing.place() - 1
	if at < 0 {
		at = len(t.things)
		t.things = append(t.things, thing)
	}
	t.settle(at, thing)
}

// drop takes a thing out if it is there.
func (t *timeline[T]) drop(thing T) {
	at := *thing.place() - 1
	if at < 0 {
		return
	}
	*thing.place() = 0
	last := len(t.things) - 1
	moved := t.things[last]
	clear(t.things[last:])
	t.things = t.things[:last]
	if at < last {
		t.settle(at, moved)
	}
}

// settle finds the place of a thing, beginning at one that is free for it.
func (t *timeline[T]) settle(at int, thing T) {
	due := thing.due()
	for at > 0 && due.Before(t.things[(at-1)/2].due()) {
		t.set(at, t.things[(at-1)/2])
		at = (at - 1) / 2
	}
	for child := 2*at + 1; child < len(t.things); child = 2*at + 1 {
		if child+1 < len(t.things) && t.things[child+1].due().Before(t.things[child].due()) {
			child++
		}
		if !t.things[child].due().Before(due) {
			break
		}
		t.set(at, t.things[child])
		at = child
	}
	t.set(at, thing)
}

func (t *timeline[T]) set(at int, thing T) {
	t.things[at] = thing
	*thing.place() = at + 1
}
