// Package nocloud prepares what cloud-init reads at the first boot of a machine.
//
// A [Seed] is the disk of cloud-init's NoCloud datasource. [VendorData] returns a document that turns a stock cloud image into
// a forward proxy, for every datasource that has vendor-data; for those that have none, [Combine] joins it with the user's
// own document. What has Squid already, such as a container, takes [SquidFiles]. What the formats mean is in cloud-init's
// documentation: https://docs.cloud-init.io/en/latest/
package nocloud
