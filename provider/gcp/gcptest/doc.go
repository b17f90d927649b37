// Package gcptest is a Compute Engine to test against: the part of its REST API that package gcp uses, over machines that only
// exist on paper. It is strict about what it is sent, answers with the bodies of the real API, and fails as it is told to.
//
// A test serves it with package httptest and names its URL as the endpoint of a provider:
//
//	cloud := gcptest.New(gcptest.Config{Project: "my-project"})
//	server := httptest.NewServer(cloud)
//	// providers: [{name: gcp, type: gcp, config: {project: my-project, endpoint: <server.URL>, withoutAuthentication: true, …}}]
//
// A machine is a list of moments, and so is an operation: what they are is computed for the moment of a request, or of one
// before it while reads lag. Nothing runs in the background.
package gcptest
