package build

import (
	"errors"
	"sync"
)

// flight lets concurrent callers share one call for each key, and remembers how it came out.
type flight[K comparable, V any] struct {
	mu    sync.Mutex
	calls map[K]*call[V]
}

type call[V any] struct {
	done  chan struct{}
	value V
	err   error
}

func (f *flight[K, V]) do(key K, fn func() (V, error)) (V, error) {
	f.mu.Lock()
	if f.calls == nil {
		f.calls = map[K]*call[V]{}
	}
	c, ok := f.calls[key]
	if !ok {
		c = &call[V]{done: make(chan struct{}), err: errors.New("internal error: a shared call panicked")}
		f.calls[key] = c
	}
	f.mu.Unlock()
	if ok {
		<-c.done
		return c.value, c.err
	}
	defer close(c.done)
	c.value, c.err = fn()
	return c.value, c.err
}

// values are those of the calls that ended well.
func (f *flight[K, V]) values() map[K]V {
	f.mu.Lock()
	defer f.mu.Unlock()
	values := map[K]V{}
	for key, c := range f.calls {
		<-c.done
		if c.err == nil {
			values[key] = c.value
		}
	}
	return values
}
