package health

// Recorder hears of every probe, while events and snapshots tell only what is news. The engine calls it with its lock
// held, so that no call of Probed for a key follows Forgotten: the methods must return at once and must not call the
// engine. They are called from several goroutines, one at a time.
type Recorder interface {
	// Probed is called once for each probe that counts. Results of removed or replaced targets do
	// not, nor do those of PartyLocal.
	Probed(key string, r Result)
	// Forgotten is called when a key was removed: what was recorded under it can go.
	Forgotten(key string)
}
