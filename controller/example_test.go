package controller_test

import (
	"context"
	"fmt"
	"os"
	"os/signal"

	"k8s.io/client-go/tools/clientcmd"

	"github.com/proxyfleet/fleet/controller"
)

// A replica shows the proxies of a cluster, and says so for as long as it leads.
func Example() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt)
	defer stop()
	cfg, err := clientcmd.BuildConfigFromFlags("", os.Getenv("KUBECONFIG"))
	if err != nil {
		fmt.Println(err)
		return
	}
	store, err := controller.New(controller.Config{REST: cfg})
	if err != nil {
		fmt.Println(err)
		return
	}
	go func() { _ = store.Run(ctx) }()
	if err := store.Synced(ctx); err != nil {
		fmt.Println(err)
		return
	}
	elector, err := controller.NewElector(controller.ElectorConfig{REST: cfg, Namespace: "proxyfleet", Name: "proxyfleet", Address: "10.0.0.1:8090"})
	if err != nil {
		fmt.Println(err)
		return
	}
	err = elector.Run(ctx, func(term context.Context) error {
		all, err := store.List(term)
		if err != nil {
			return err
		}
		fmt.Println("this replica leads a fleet of", len(all))
		<-term.Done()
		return nil
	})
	fmt.Println(err)
}
