package monitor_test

import (
	"context"
	"fmt"
	"log/slog"
	"os"

	"github.com/proxyfleet/fleet/provider"
	"github.com/proxyfleet/fleet/provider/monitor"
)

// printer prints what it is told, and ends the program's context after the last provider.
type printer struct{ done context.CancelFunc }

func (p printer) Report(_ context.Context, r monitor.Result) error {
	fmt.Printf("%s: %d of %d ready\n", r.Provider, r.Ready(), len(r.Targets))
	if r.Provider == "lab" {
		p.done()
	}
	return nil
}

// A monitor asks the providers of a fleet, logs what turned, and hands the results on.
func Example() {
	ctx, done := context.WithCancel(context.Background())
	defer done()
	logger := slog.New(slog.NewTextHandler(os.Stdout, &slog.HandlerOptions{ReplaceAttr: func(_ []string, a slog.Attr) slog.Attr {
		if a.Key == slog.TimeKey {
			return slog.Attr{}
		}
		return a
	}}))
	m, err := monitor.New(monitor.Config{
		Providers: map[string]provider.Provider{
			"cloud": says(provider.TargetStatus{Target: "project-a", Ready: true}),
			"lab":   says(provider.TargetStatus{Target: "host-1", Reason: "Refused", Message: "connection refused"}),
		},
		Logger: logger,
		Sink:   printer{done},
	})
	if err != nil {
		fmt.Println(err)
		return
	}
	fmt.Println(m.Run(ctx))
	// Output:
	// level=WARN msg="provider target not ready" provider=lab target=host-1 reason=Refused message="connection refused"
	// cloud: 1 of 1 ready
	// lab: 0 of 1 ready
	// <nil>
}
