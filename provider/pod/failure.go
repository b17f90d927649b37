package pod

import (
	"context"
	"errors"
	"fmt"
	"net/http"
	"regexp"
	"strings"
	"time"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/proxyfleet/fleet/provider"
)

// The reasons of this provider's errors, beside those of package provider.
const (
	forbidden             = "Forbidden"             // RBAC
	quotaExceeded         = "QuotaExceeded"         // a ResourceQuota has no room
	quotaUnmet            = "QuotaUnmet"            // a ResourceQuota counts what the pod does not say
	limitRange            = "LimitRange"            // a LimitRange allows no such pod
	podSecurity           = "PodSecurity"           // the namespace's Pod Security Standard allows no such pod
	admissionDenied       = "AdmissionDenied"       // a policy or a webhook said no
	webhookFailed         = "WebhookFailed"         // a webhook did not answer
	serviceAccountMissing = "ServiceAccountMissing" // the namespace is too young to have its default ServiceAccount
	namespaceNotFound     = "NamespaceNotFound"     // there is no such namespace
	namespaceTerminating  = "NamespaceTerminating"  // the namespace is being deleted
	credentialsRejected   = "CredentialsRejected"   // the API server does not know who asks
	invalidRequest        = "InvalidRequest"        // the API server takes no such pod
	conflict              = "Conflict"              // somebody else was quicker
	notVisible            = "NotVisible"            // the name is taken, and who has it is not there
	rateLimited           = "RateLimited"           // too many requests
	serverError           = "ServerError"           // the API server is in trouble
	unreachable           = "Unreachable"           // no answer came, or that of something else
	noKubeconfig          = "NoKubeconfig"          // there is nothing to reach the cluster by
)

// verdict is what an error means to the fleet.
type verdict struct {
	class  provider.Class
	reason string
}

// The words of the API server. It has one code for all that it denies.
var (
	webhookSaidNo  = regexp.MustCompile(`(admission webhook ".*"|ValidatingAdmissionPolicy '.*') denied (the )?request`)
	webhookIsAway  = regexp.MustCompile(`failed calling webhook`)
	isNoNamespace  = regexp.MustCompile(`^namespaces ".*" not found$`)
	ofRBAC         = regexp.MustCompile(`cannot [a-z]+ resource`)
	ofQuota        = regexp.MustCompile(`exceeded quota: `)
	ofYoungQuota   = regexp.MustCompile(`status unknown for quota: `)
	ofUnmetQuota   = regexp.MustCompile(`(failed|insufficient) quota`)
	ofPodSecurity  = regexp.MustCompile(`violates PodSecurity `)
	ofLimitRange   = regexp.MustCompile(`(minimum|maximum) \S+ usage per |limit to request ratio per `)
	ofNoAccount    = regexp.MustCompile(`error looking up service account `)
	ofOldNamespace = regexp.MustCompile(`because it is being terminated`)
)

// ofStatus is the verdict on an answer that says no.
func ofStatus(status metav1.Status) verdict {
	switch code, text := int(status.Code), status.Message; {
	case webhookSaidNo.MatchString(text):
		return verdict{provider.ErrPermanent, admissionDenied}
	case webhookIsAway.MatchString(text):
		return verdict{provider.ErrTransient, webhookFailed}
	case code == http.StatusForbidden:
		return ofDenial(text)
	case code == http.StatusUnauthorized:
		return verdict{provider.ErrTransient, credentialsRejected}
	case code == http.StatusNotFound && isNoNamespace.MatchString(text):
		return verdict{provider.ErrPermanent, namespaceNotFound}
	case code == http.StatusNotFound, code == http.StatusConflict, code == http.StatusGone:
		return verdict{provider.ErrTransient, conflict}
	case code == http.StatusTooManyRequests:
		return verdict{provider.ErrTransient, rateLimited}
	case code == http.StatusRequestTimeout, code >= http.StatusInternalServerError:
		return verdict{provider.ErrTransient, serverError}
	}
	return verdict{provider.ErrPermanent, invalidRequest}
}

// ofDenial is the verdict on a 403, told by its words. What is said in none of these is the denial of some admission plugin.
func ofDenial(text string) verdict {
	switch {
	case ofRBAC.MatchString(text):
		return verdict{provider.ErrPermanent, forbidden}
	case ofQuota.MatchString(text):
		return verdict{provider.ErrQuotaExceeded, quotaExceeded}
	case ofYoungQuota.MatchString(text):
		return verdict{provider.ErrTransient, quotaUnmet}
	case ofUnmetQuota.MatchString(text):
		return verdict{provider.ErrPermanent, quotaUnmet}
	case ofPodSecurity.MatchString(text):
		return verdict{provider.ErrPermanent, podSecurity}
	case ofLimitRange.MatchString(text):
		return verdict{provider.ErrPermanent, limitRange}
	case ofNoAccount.MatchString(text):
		return verdict{provider.ErrTransient, serviceAccountMissing}
	case ofOldNamespace.MatchString(text):
		return verdict{provider.ErrPermanent, namespaceTerminating}
	}
	return verdict{provider.ErrPermanent, admissionDenied}
}

// failure is the error of a request.
func failure(ctx context.Context, op string, err error) *provider.Error {
	if interrupted, ok := errors.AsType[*provider.Error](provider.Interrupted(ctx, op)); ok {
		return interrupted
	}
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	switch {
	case errors.Is(err, errConfig):
		return &provider.Error{Op: op, Class: provider.ErrTransient, Reason: noKubeconfig, Err: err}
	case !ok:
		return &provider.Error{Op: op, Class: provider.ErrTransient, Reason: unreachable, Err: err}
	case ofStranger(answer):
		return &provider.Error{Op: op, Class: provider.ErrTransient, Reason: unreachable, RetryAfter: retryAfter(answer),
			Err: fmt.Errorf("%w: %d", errStranger, answer.ErrStatus.Code)}
	}
	v := ofStatus(answer.ErrStatus)
	return &provider.Error{Op: op, Class: v.class, Reason: v.reason, RetryAfter: retryAfter(answer),
		Err: errors.New(provider.Clip(strings.TrimSpace(answer.ErrStatus.Message)))}
}

func retryAfter(answer *apierrors.StatusError) time.Duration {
	seconds, _ := apierrors.SuggestsClientDelay(answer)
	return time.Duration(seconds) * time.Second
}

// ofStranger says whether an answer that says no is not one of the API's own, such as that of something that stands between. One
// of a server in trouble, or of one that has too much to do, is no page of an API even where it is genuine.
func ofStranger(answer *apierrors.StatusError) bool {
	code := answer.ErrStatus.Code
	if code >= http.StatusInternalServerError || code == http.StatusTooManyRequests || code == http.StatusUnauthorized {
		return false
	}
	_, strange := apierrors.StatusCause(answer, metav1.CauseTypeUnexpectedServerResponse)
	return strange
}

// notFound says whether an answer proves that a pod is not there.
func notFound(err error) bool {
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsNotFound(answer) && !ofStranger(answer) && answer.ErrStatus.Details != nil && answer.ErrStatus.Details.Kind == "pods"
}

// exists says whether an answer means that the name is taken.
func exists(err error) bool {
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsAlreadyExists(answer) && !ofStranger(answer)
}

// changed says whether an answer means that a precondition was not met.
func changed(err error) bool {
	answer, ok := errors.AsType[*apierrors.StatusError](err)
	return ok && apierrors.IsConflict(answer) && !ofStranger(answer)
}

// ofSecret is the error of a request that held a Secret. Who refused it may have quoted it.
func ofSecret(e *provider.Error) *provider.Error {
	if e.Reason == admissionDenied || e.Reason == invalidRequest || e.Reason == webhookFailed {
		e.Err = errors.New("the Secret of the pod was refused (the message is withheld: it may quote it)")
	}
	return e
}
