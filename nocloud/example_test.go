package nocloud_test

import (
	"fmt"
	"log"

	"github.com/proxyfleet/fleet/nocloud"
	"github.com/proxyfleet/fleet/secret"
)

// A machine that turns into a proxy when it boots, with a document of its user's beside.
func Example() {
	setup, err := nocloud.VendorData(nocloud.Proxy{
		Name:     "proxy-kq3v7y2m5n4x6z7a",
		Port:     3128,
		Username: secret.New("crawler"),
		Password: secret.New("a long password"),
	})
	if err != nil {
		log.Fatal(err)
	}
	user := secret.New("#cloud-config\ntimezone: Europe/Berlin\n")

	// On a hypervisor: a disk.
	disk, err := nocloud.Seed{InstanceID: "proxy-kq3v7y2m5n4x6z7a", UserData: user, VendorData: setup}.ISO()
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(len(disk)%2048 == 0)

	// On a cloud that has no vendor-data: one document.
	both := nocloud.Combine(setup, user)
	fmt.Println(both.IsZero())
	// Output:
	// true
	// false
}
