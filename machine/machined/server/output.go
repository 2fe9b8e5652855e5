//go:build linux

package server

import (
	"sync"

	"github.com/talos-factory/talos-factory/api/machine"
)

// output sends what a container writes. Its two streams are copied by two goroutines, and a gRPC stream takes one sender at a time.
type output struct {
	mu     sync.Mutex
	stream debugStream
}

func lockedOutput(stream debugStream) *output { return &output{stream: stream} }

func (o *output) Write(p []byte) (int, error) {
	o.mu.Lock()
	defer o.mu.Unlock()

	err := o.stream.Send(&machine.DebugContainerRunResponse{Resp: &machine.DebugContainerRunResponse_StdoutData{StdoutData: p}})
	if err != nil {
		return 0, err
	}

	return len(p), nil
}
