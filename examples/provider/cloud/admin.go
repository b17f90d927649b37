package cloud

import (
	"io"
	"net/http"
)

// adminRoutes adds what no real cloud has. No fault ever hits these.
func (c *Cloud) adminRoutes(mux *http.ServeMux) {
	mux.HandleFunc("GET /admin/history", admin(func(*http.Request, []byte) (any, error) {
		return map[string]any{"instances": c.History()}, nil
	}))
	mux.HandleFunc("POST /admin/faults", admin(func(_ *http.Request, body []byte) (any, error) {
		return nil, apply(body, c.Inject)
	}))
	mux.HandleFunc("PUT /admin/conditions", admin(func(_ *http.Request, body []byte) (any, error) {
		return nil, apply(body, c.SetConditions)
	}))
	mux.HandleFunc("POST /admin/heal", admin(func(*http.Request, []byte) (any, error) {
		c.Heal()
		return nil, nil
	}))
	mux.HandleFunc("POST /admin/zones/{zone}/instances/{name}/kill", admin(func(r *http.Request, _ []byte) (any, error) {
		return nil, c.Kill(r.PathValue("zone"), r.PathValue("name"))
	}))
	mux.HandleFunc("DELETE /admin/all", admin(func(*http.Request, []byte) (any, error) {
		return nil, c.Purge()
	}))
}

func admin(do func(*http.Request, []byte) (any, error)) http.HandlerFunc {
	return func(w http.ResponseWriter, r *http.Request) {
		body, err := io.ReadAll(http.MaxBytesReader(w, r.Body, maxBody))
		if err != nil {
			respond(w, nil, badRequest(err))
			return
		}
		answer, err := do(r, body)
		respond(w, answer, err)
	}
}

// apply decodes a document and hands it on. What is refused is the caller's mistake.
func apply[T any](body []byte, to func(T) error) error {
	var document T
	if err := decode(body, &document); err != nil {
		return err
	}
	if err := to(document); err != nil {
		return badRequest(err)
	}
	return nil
}
