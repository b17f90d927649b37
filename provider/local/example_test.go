package local_test

import (
	"context"
	"encoding/json"
	"fmt"
	"os"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/local"
)

func ExampleNew() {
	dir, err := os.MkdirTemp("", "fleet")
	if err != nil {
		fmt.Println(err)
		return
	}
	defer os.RemoveAll(dir)
	config := json.RawMessage(`{"addresses": ["127.0.81.1-127.0.81.9"]}`)
	p, err := local.New(provider.Environment{Fleet: "lab", StateDir: dir}, config)
	if err != nil {
		fmt.Println(err)
		return
	}

	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error)
	runner, _ := provider.As[provider.Runner](p)
	go func() { ended <- runner.Run(ctx) }()

	in, err := p.Create(ctx, provider.Request{
		Name:  provider.Name("lab", "0b5ce0b1"),
		Marks: provider.Marks{Fleet: "lab", UID: "0b5ce0b1", Hash: "v1-00"},
		Port:  31281,
	})
	fmt.Println(in.ID, in.State, in.Host, in.Port, err)

	cancel()
	fmt.Println(<-ended)
	// Output:
	// listeners/proxy-o4vyggcjdr27zvkg Running 127.0.81.1 31281 <nil>
	// <nil>
}
