package cluster

import (
	"bufio"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"time"
)

// auditPolicy has every request in the log once it is answered, and a watch once it has begun as well.
const auditPolicy = `apiVersion: audit.k8s.io/v1
kind: Policy
omitStages: [RequestReceived]
rules: [{level: Metadata}]
`

// AuditEvent is one request that the API server has answered, or has begun to where it is a watch.
type AuditEvent struct {
	// User is who asked: "admin", "system:serviceaccount:NAMESPACE:NAME". Agent is their User-Agent.
	User, Agent string
	// Verb is as RBAC has it: get, list, watch, create, update, patch, delete, deletecollection.
	Verb string
	// Group, Resource, Subresource, Namespace and Name say what was asked for. All are empty for other paths than of objects.
	Group, Resource, Subresource, Namespace, Name string
	// URI is what was asked for in full.
	URI string
	// Code is the status of the answer.
	Code int
	// Time is when the request came.
	Time time.Time
}

// Audit returns every request to the API server since the cluster was started, in the order of their answers. Those of the parts of
// the cluster are among them. A long answer may be seen a moment before it stands here.
func (c *Cluster) Audit() ([]AuditEvent, error) {
	file, err := os.Open(c.path("audit.log"))
	if err != nil {
		return nil, err
	}
	defer file.Close()
	var events []AuditEvent
	seen := map[string]bool{}
	for lines := bufio.NewReader(file); ; {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return events, nil // a line without an end is being written
		}
		if err != nil {
			return nil, err
		}
		id, event, err := parseAudit(line)
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file.Name(), err)
		}
		if !seen[id] { // a watch stands there twice
			seen[id] = true
			events = append(events, event)
		}
	}
}

func parseAudit(line []byte) (id string, event AuditEvent, err error) {
	var raw struct {
		AuditID, Verb, RequestURI, UserAgent string
		User                                 struct{ Username string }
		ObjectRef                            struct{ APIGroup, Resource, Subresource, Namespace, Name string }
		ResponseStatus                       struct{ Code int }
		RequestReceivedTimestamp             time.Time
	}
	err = json.Unmarshal(line, &raw)
	return raw.AuditID, AuditEvent{
		User: raw.User.Username, Agent: raw.UserAgent, Verb: raw.Verb, URI: raw.RequestURI,
		Group: raw.ObjectRef.APIGroup, Resource: raw.ObjectRef.Resource, Subresource: raw.ObjectRef.Subresource,
		Namespace: raw.ObjectRef.Namespace, Name: raw.ObjectRef.Name,
		Code: raw.ResponseStatus.Code, Time: raw.RequestReceivedTimestamp,
	}, err
}
