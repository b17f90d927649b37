// Package providertest is the conformance suite of [provider.Provider], and an in-memory provider for the tests of
// those who use one.
//
// A provider's test says how to reach a backend and hands that to [Run]:
//
//	func TestConformance(t *testing.T) {
//		providertest.Run(t, func(t testing.TB) providertest.Harness {
//			cloud := startCloud(t)
//			return providertest.Harness{
//				Open:     func(t testing.TB, fleet string) provider.Provider { return open(t, cloud, fleet) },
//				Request:  func() provider.Request { return provider.Request{Port: 3128} },
//				Outlives: true,
//				Inject:   cloud.Inject,
//			}
//		})
//	}
//
// Each case has a backend of its own. A case that needs what the harness does not offer is skipped, and says what it
// would have needed. The suite waits on the clock of package time, so it also runs in a testing/synctest bubble where the
// backend does.
package providertest
