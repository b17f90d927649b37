package lease

import (
	"container/heap"
	"time"
)

// timed is something that falls due at a moment.
type timed interface {
	due() time.Time
	// place is where a timeline keeps its own note of where it has put the thing: 1 for the first place, 0 for not in it.
	place() *int
}

// timeline is a heap of things by the moment at which they fall due. A thing is in one timeline at most.
type timeline[T timed] struct{ things []T }

// first returns what falls due first, or false if the timeline is empty.
func (t *timeline[T]) first() (thing T, ok bool) {
	if len(t.things) == 0 {
		return thing, false
	}
	return t.things[0], true
}

// put adds a thing, or moves it if it is there already and its moment has changed.
func (t *timeline[T]) put(thing T) {
	if at := *thing.place(); at > 0 {
		heap.Fix(t, at-1)
		return
	}
	heap.Push(t, thing)
}

// drop takes a thing out if it is there.
func (t *timeline[T]) drop(thing T) {
	if at := *thing.place(); at > 0 {
		heap.Remove(t, at-1)
	}
}

// Len is the number of things.
func (t *timeline[T]) Len() int { return len(t.things) }

// Less is part of heap.Interface.
func (t *timeline[T]) Less(i, j int) bool { return t.things[i].due().Before(t.things[j].due()) }

// Swap is part of heap.Interface.
func (t *timeline[T]) Swap(i, j int) {
	t.things[i], t.things[j] = t.things[j], t.things[i]
	*t.things[i].place(), *t.things[j].place() = i+1, j+1
}

// Push is part of heap.Interface; put is what others call.
func (t *timeline[T]) Push(thing any) {
	t.things = append(t.things, thing.(T))
	*thing.(T).place() = len(t.things)
}

// Pop is part of heap.Interface; drop is what others call.
func (t *timeline[T]) Pop() any {
	last := len(t.things) - 1
	thing := t.things[last]
	clear(t.things[last:])
	t.things = t.things[:last]
	*thing.place() = 0
	return thing
}
