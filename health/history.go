package health

// historySize is how many results are kept of a target.
const historySize = 5

// history is the newest results of one incarnation, those that do not count towards its verdict included.
type history struct {
	results []Result // a ring once it is full
	next    int
}

func (h *history) add(r Result) {
	if h.results == nil {
		h.results = make([]Result, 0, historySize)
	}
	if len(h.results) < historySize {
		h.results = append(h.results, r)
		return
	}
	h.results[h.next] = r
	h.next = (h.next + 1) % historySize
}

// newest returns the results, the newest first.
func (h *history) newest() []Result {
	all := make([]Result, len(h.results))
	for i, r := range h.results {
		age := (h.next - 1 - i + 2*len(all)) % len(all)
		all[age] = r
	}
	return all
}

// Recent returns the results of the last 5 probes of an incarnation, the newest first. Unlike what a [Recorder] hears, they
// include those of [PartyLocal], which say nothing about the target. There are none where [Engine.Snapshot] knows nothing.
func (e *Engine) Recent(key, incarnation string) []Result {
	e.mu.Lock()
	defer e.mu.Unlock()
	known, ok := e.lookup(key)
	if !ok || known.target.Incarnation != incarnation {
		return nil
	}
	return known.history.newest()
}
