package gcp

import (
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net/http"
	"os"

	"cloud.google.com/go/auth"
	"cloud.google.com/go/auth/credentials"
	"cloud.google.com/go/auth/httptransport"
)

// scope is all that tokens are asked for.
const scope = "https://www.googleapis.com/auth/compute"

// errCredentials says that there is nothing to authenticate with.
var errCredentials = errors.New("no credentials")

// authorized returns an HTTP client that authenticates itself.
func (s settings) authorized(base http.RoundTripper) (*http.Client, error) {
	if s.WithoutAuthentication {
		return &http.Client{Transport: base}, nil
	}
	own, err := s.credentials(&http.Client{Transport: base, Timeout: requestTime})
	if err != nil {
		return nil, fmt.Errorf("%w: %w", errCredentials, err)
	}
	return httptransport.NewClient(&httptransport.Options{
		Credentials:      own,
		BaseRoundTripper: base,
		DisableTelemetry: true, // base has it
		Logger:           slog.New(slog.DiscardHandler),
	})
}

// credentials returns what tokens are had with, from whoever issues them.
func (s settings) credentials(issuer *http.Client) (*auth.Credentials, error) {
	options := &credentials.DetectOptions{Scopes: []string{scope}, Client: issuer, Logger: slog.New(slog.DiscardHandler)}
	if s.CredentialsFile == "" {
		return credentials.DetectDefault(options)
	}
	data, err := readSmall(s.CredentialsFile)
	if err != nil {
		return nil, err
	}
	kind, err := kindOf(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", s.CredentialsFile, err)
	}
	return credentials.NewCredentialsFromJSON(kind, data, options)
}

// kindOf says what a file of credentials is. Those that would act for a person are not for a service.
func kindOf(data []byte) (credentials.CredType, error) {
	var file struct{ Type credentials.CredType }
	if err := json.Unmarshal(data, &file); err != nil {
		return "", errors.New("it is no JSON") // the cause might quote a key
	}
	switch file.Type {
	case credentials.ServiceAccount, credentials.ExternalAccount, credentials.ImpersonatedServiceAccount:
		return file.Type, nil
	}
	return "", fmt.Errorf("its type is %.40q; want %q, %q or %q", file.Type,
		credentials.ServiceAccount, credentials.ExternalAccount, credentials.ImpersonatedServiceAccount)
}

// readSmall reads a regular file of the size that credentials have.
func readSmall(path string) ([]byte, error) {
	const most = 1 << 20
	info, err := os.Stat(path)
	if err != nil {
		return nil, err
	}
	if !info.Mode().IsRegular() || info.Size() > most {
		return nil, &fs.PathError{Op: "read", Path: path, Err: errors.New("no file of credentials")}
	}
	return os.ReadFile(path)
}
