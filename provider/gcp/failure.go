package gcp

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/compute/apiv1/computepb"
	"google.golang.org/api/googleapi"

	"github.com/proxyfleet/fleet/provider"
)

// The reasons of this provider's errors and states, beside those of package provider and the statuses of machines.
const (
	quotaExceeded       = "QuotaExceeded"       // the project has no more of something in that region
	addressesExhausted  = "AddressesExhausted"  // the subnetwork or the region has no more addresses
	zoneExhausted       = "ZoneExhausted"       // the zone has no room for that type of machine
	rateLimited         = "RateLimited"         // too many requests, or too many operations at once
	backendError        = "BackendError"        // Compute Engine is in trouble
	unreachable         = "Unreachable"         // no answer came
	zoneUnreachable     = "ZoneUnreachable"     // a list lacks a zone
	permissionDenied    = "PermissionDenied"    // IAM
	apiDisabled         = "APIDisabled"         // the Compute Engine API is not enabled, or the project does not exist
	projectNotFound     = "ProjectNotFound"     // there is no such project or zone
	policyViolated      = "PolicyViolated"      // an organization policy forbids it
	invalidRequest      = "InvalidRequest"      // Compute Engine does not take such a machine
	noCredentials       = "NoCredentials"       // there is nothing to authenticate with
	credentialsRejected = "CredentialsRejected" // what there is, is not accepted
	notReady            = "NotReady"            // something that is needed is not ready, or in use, for the moment
	notVisible          = "NotVisible"          // the name is taken, and it cannot be seen yet by whom
	insertRunning       = "InsertRunning"       // nothing is there yet, and the insert has not ended
	createFailed        = "CreateFailed"        // an insert came to nothing, for a reason that has no word of its own
	noAddress           = "NoAddress"           // the machine runs and has no address yet
	stateUnwritable     = "StateUnwritable"     // the state directory did not take a change
)

// rateWait is how long to wait after too many requests: the quota refills every minute.
const rateWait = time.Minute

// verdict is what an error means to the fleet.
type verdict struct {
	class  provider.Class
	reason string
	wait   time.Duration
}

// ofWord is the verdict on a word of the API: a reason in the body of an answer, or the code of a failed operation. The same
// thing has a name in either.
func ofWord(word string) (v verdict, known bool) {
	if prefix := "IP_SPACE_EXHAUSTED"; strings.HasPrefix(word, prefix) {
		return verdict{class: provider.ErrQuotaExceeded, reason: addressesExhausted}, true
	}
	if prefix := "ZONE_RESOURCE_POOL_EXHAUSTED"; strings.HasPrefix(word, prefix) {
		return verdict{class: provider.ErrQuotaExceeded, reason: zoneExhausted}, true
	}
	switch word {
	case "quotaExceeded", "QUOTA_EXCEEDED", "dailyLimitExceeded":
		return verdict{class: provider.ErrQuotaExceeded, reason: quotaExceeded}, true
	case "rateLimitExceeded", "userRateLimitExceeded", "RATE_LIMIT_EXCEEDED", "CONCURRENT_OPERATIONS_QUOTA_EXCEEDED",
		"RESOURCE_OPERATION_RATE_EXCEEDED":
		return verdict{class: provider.ErrTransient, reason: rateLimited, wait: rateWait}, true
	case "resourceNotReady", "resourceInUseByAnotherResource", "RESOURCE_NOT_READY", "RESOURCE_IN_USE_BY_ANOTHER_RESOURCE":
		return verdict{class: provider.ErrTransient, reason: notReady}, true
	case "backendError", "internalError", "INTERNAL_ERROR", "SERVICE_UNAVAILABLE", "SERVICE_UNAVAILABLE_FOR_LOCATION":
		return verdict{class: provider.ErrTransient, reason: backendError}, true
	}
	reason := ofLastingWord(word)
	return verdict{class: provider.ErrPermanent, reason: reason}, reason != ""
}

// ofLastingWord is the reason for a word that stands for what somebody has to change, or "".
func ofLastingWord(word string) string {
	switch word {
	case "forbidden", "insufficientPermissions", "PERMISSIONS_ERROR", "PERMISSION_DENIED", "IAM_PERMISSION_DENIED":
		return permissionDenied
	case "accessNotConfigured", "SERVICE_DISABLED":
		return apiDisabled
	case "invalid", "invalidParameter", "badRequest", "required", "notFound", "INVALID_FIELD_VALUE", "INVALID_PARAMETER",
		"INVALID_USAGE", "MISSING_REQUIRED_FIELD", "RESOURCE_NOT_FOUND", "UNSUPPORTED_OPERATION":
		return invalidRequest
	case "conditionNotMet", "CONDITION_NOT_MET":
		return policyViolated
	case "PROJECT_NOT_FOUND":
		return projectNotFound
	case "authError":
		return credentialsRejected
	}
	return ""
}

// ofStatus is the verdict on an answer, or a failed operation, that has no word that is known.
func ofStatus(status int) verdict {
	switch {
	case status == http.StatusUnauthorized:
		return verdict{class: provider.ErrPermanent, reason: credentialsRejected}
	case status == http.StatusForbidden:
		return verdict{class: provider.ErrPermanent, reason: permissionDenied}
	case status == http.StatusPreconditionFailed:
		return verdict{class: provider.ErrPermanent, reason: policyViolated}
	case status == http.StatusTooManyRequests:
		return verdict{class: provider.ErrTransient, reason: rateLimited, wait: rateWait}
	case status == http.StatusBadRequest || status == http.StatusNotFound:
		return verdict{class: provider.ErrPermanent, reason: invalidRequest}
	case status == http.StatusConflict || status == http.StatusRequestTimeout:
		return verdict{class: provider.ErrTransient, reason: notReady}
	}
	return verdict{class: provider.ErrTransient, reason: backendError}
}

// failure is the error of a request.
func failure(ctx context.Context, op string, err error) *provider.Error {
	if interrupted, ok := errors.AsType[*provider.Error](provider.Interrupted(ctx, op)); ok {
		return interrupted
	}
	if answer, ok := errors.AsType[*googleapi.Error](err); ok {
		return refusal(op, answer)
	}
	if token, ok := errors.AsType[*auth.Error](err); ok {
		return tokenRefusal(op, token)
	}
	if errors.Is(err, errCredentials) {
		return &provider.Error{Op: op, Class: provider.ErrTransient, Reason: noCredentials, Err: err}
	}
	return &provider.Error{Op: op, Class: provider.ErrTransient, Reason: unreachable, Err: err}
}

// refusal is the error of an answer that says no.
func refusal(op string, answer *googleapi.Error) *provider.Error {
	words := wordsOf(answer)
	v := ofStatus(answer.Code)
	known := answer.Code == http.StatusUnauthorized // whatever word comes with it
	for _, word := range words {
		if !known {
			if of, ok := ofWord(word); ok {
				v, known = of, true
			}
		}
	}
	text := safe(answer.Message)
	switch {
	case len(words) == 0 && answer.Message == "" && answer.Code < http.StatusInternalServerError && !known:
		// From something that stands between, such as a proxy or a wrong endpoint: it says nothing about the project.
		v, text = verdict{class: provider.ErrTransient, reason: unreachable}, errStranger.Error()
	case answer.Code == http.StatusNotFound && projectOrZone.MatchString(answer.Message):
		v.reason = projectNotFound
	case v.reason == zoneExhausted:
		text = exhausted(infoOf(answer), text)
	}
	wait := v.wait
	if seconds, err := strconv.Atoi(answer.Header.Get("Retry-After")); err == nil {
		wait = max(wait, time.Duration(seconds)*time.Second)
	}
	return &provider.Error{Op: op, Class: v.class, Reason: v.reason, RetryAfter: wait, Err: fmt.Errorf("%d: %s", answer.Code, text)}
}

// projectOrZone is how a message calls what holds instances.
var projectOrZone = regexp.MustCompile(`'projects/[^/']+(/zones/[^/']+)?'`)

// notFound says whether an answer proves that an instance is not there. That its zone or its project is not there proves
// nothing, nor does the 404 of something else.
func notFound(err error) bool {
	answer, ok := errors.AsType[*googleapi.Error](err)
	return ok && answer.Code == http.StatusNotFound && slices.Contains(wordsOf(answer), "notFound") &&
		!projectOrZone.MatchString(answer.Message)
}

// exists says whether an answer means that the name is taken.
func exists(err error) bool {
	answer, ok := errors.AsType[*googleapi.Error](err)
	return ok && answer.Code == http.StatusConflict && slices.Contains(wordsOf(answer), "alreadyExists")
}

// wordsOf returns the words of an answer that say why. The library's own Reason is empty for this API.
func wordsOf(answer *googleapi.Error) []string {
	var words []string
	for _, item := range answer.Errors {
		if item.Reason != "" {
			words = append(words, item.Reason)
		}
	}
	for _, detail := range answer.Details {
		if fields, ok := detail.(map[string]any); ok {
			if word, _ := fields["reason"].(string); word != "" {
				words = append(words, word)
			}
		}
	}
	return words
}

// infoOf returns what an answer tells beside. It is called metadata in newer answers.
func infoOf(answer *googleapi.Error) map[string]string {
	info := map[string]string{}
	for _, detail := range answer.Details {
		fields, _ := detail.(map[string]any)
		for _, key := range []string{"metadatas", "metadata"} {
			values, _ := fields[key].(map[string]any)
			for name, value := range values {
				info[name], _ = value.(string)
			}
		}
	}
	return info
}

// tokenRefusal is the error of credentials that yield no token. The answer of the token's issuer is not repeated.
func tokenRefusal(op string, err *auth.Error) *provider.Error {
	e := &provider.Error{Op: op, Class: provider.ErrTransient, Reason: unreachable, Err: errors.New("no token could be had")}
	if err.Response == nil {
		return e
	}
	e.Err = fmt.Errorf("no token could be had: its issuer answered %s", err.Response.Status)
	if s := err.Response.StatusCode; s >= 400 && s < 500 && s != http.StatusTooManyRequests && s != http.StatusRequestTimeout {
		e.Class, e.Reason = provider.ErrPermanent, credentialsRejected
	}
	return e
}

// outcome is the error of an operation that has ended, or nil for one that came to something. One whose name was taken met what
// an earlier one makes: that says nothing of a failure.
func outcome(op *computepb.Operation) *provider.Error {
	failures := op.GetError().GetErrors()
	if op.GetStatus() != computepb.Operation_DONE || (len(failures) == 0 && op.GetHttpErrorStatusCode() < http.StatusBadRequest) {
		return nil
	}
	v := ofStatus(int(op.GetHttpErrorStatusCode()))
	if v.class == provider.ErrTransient {
		v.reason = createFailed
	}
	known := false
	var texts []string
	for _, f := range failures {
		if f.GetCode() == "RESOURCE_ALREADY_EXISTS" {
			return nil
		}
		of, ok := ofWord(f.GetCode())
		if ok && !known {
			v, known = of, true
		}
		text := safe(f.GetMessage())
		if of.reason == zoneExhausted {
			text = exhausted(detailsOf(f, op), text)
		}
		texts = append(texts, fmt.Sprintf("%s: %s", f.GetCode(), text))
	}
	if len(texts) == 0 {
		texts = []string{safe(op.GetHttpErrorMessage())}
	}
	return &provider.Error{Class: v.class, Reason: v.reason, RetryAfter: v.wait, Err: errors.New(strings.Join(texts, "; "))}
}

func detailsOf(f *computepb.Errors, op *computepb.Operation) map[string]string {
	info := map[string]string{"zone": lastOf(op.GetZone())}
	for _, d := range f.GetErrorDetails() {
		for name, value := range d.GetErrorInfo().GetMetadatas() {
			if value != "" {
				info[name] = value
			}
		}
	}
	return info
}

// exhausted says which zone has no room, and which has.
func exhausted(info map[string]string, otherwise string) string {
	zone := info["zone"]
	if zone == "" {
		return otherwise
	}
	text := "zone " + safe(zone) + " has no room now"
	if vm := info["vmType"]; vm != "" {
		text += " for " + safe(vm)
	}
	if others := info["zonesAvailable"]; others != "" {
		text += "; there is room in " + safe(strings.Join(strings.Split(others, ","), ", "))
	}
	return text
}

// lastOf returns the last part of a URL.
func lastOf(url string) string { return url[strings.LastIndex(url, "/")+1:] }

// safe is a message of the API without what it must not show: it may quote the field that it complains of, and metadata holds
// whatever secret a cloud-init document has.
func safe(message string) string {
	const most = 400
	if strings.Contains(strings.ToLower(message), "metadata") {
		return "(withheld: it speaks of metadata, and may quote it)"
	}
	message, _, _ = strings.Cut(message, "\n")
	if runes := []rune(message); len(runes) > most {
		message = string(runes[:most]) + "…"
	}
	return strings.TrimSpace(message)
}

// met says whether an operation came to nothing because the name is taken.
func met(op *computepb.Operation) bool {
	return slices.ContainsFunc(op.GetError().GetErrors(), func(f *computepb.Errors) bool { return f.GetCode() == "RESOURCE_ALREADY_EXISTS" })
}
