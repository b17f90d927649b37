package cluster

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net/http"
)

// Compact makes etcd forget every revision but the last. The API server still has in memory what changed lately: a watch and the rest
// of a paged list from an earlier revision are answered with 410 Gone once it has been stopped and started, and at once where
// Config.Flags has --watch-cache=false.
func (c *Cluster) Compact(ctx context.Context) error {
	var status struct {
		Header struct {
			Revision string `json:"revision"`
		} `json:"header"`
	}
	if err := c.askEtcd(ctx, "/v3/maintenance/status", struct{}{}, &status); err != nil {
		return err
	}
	compaction := map[string]any{"revision": status.Header.Revision, "physical": true}
	return c.askEtcd(ctx, "/v3/kv/compaction", compaction, &struct{}{})
}

// askEtcd makes a call of etcd's JSON gateway.
func (c *Cluster) askEtcd(ctx context.Context, path string, question, answer any) error {
	body, err := json.Marshal(question)
	if err != nil {
		return err
	}
	request, err := http.NewRequestWithContext(ctx, http.MethodPost, c.etcdURL()+path, bytes.NewReader(body))
	if err != nil {
		return err
	}
	response, err := http.DefaultClient.Do(request)
	if err != nil {
		return err
	}
	defer response.Body.Close()
	text, err := io.ReadAll(io.LimitReader(response.Body, 1<<20))
	if err != nil {
		return err
	}
	if response.StatusCode != http.StatusOK {
		return fmt.Errorf("etcd: %s: %s: %s", path, response.Status, text)
	}
	return json.Unmarshal(text, answer)
}
