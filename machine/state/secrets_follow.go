package state

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"github.com/cosi-project/runtime/api/v1alpha1"
	"github.com/cosi-project/runtime/pkg/resource"
	cosi "github.com/cosi-project/runtime/pkg/state"
	"github.com/cosi-project/runtime/pkg/state/protobuf/client"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
)

// How long a daemon waits before it asks machined again.
const followPause = 500 * time.Millisecond

// FollowAPICertificates calls apply with apid's resource, once it exists and whenever it
// changes. socket is where machined serves it. It returns when ctx ends, and outlives
// machined's restarts.
func FollowAPICertificates(ctx context.Context, log *slog.Logger, socket string, apply func(APICertificatesSpec)) error {
	pointer := NewAPICertificates(APICertificatesSpec{}).Metadata()
	return follow(ctx, log, socket, pointer, func(r resource.Resource) error {
		decoded, err := DecodeAPICertificates(r)
		if err == nil {
			apply(*decoded.TypedSpec())
		}
		return err
	})
}

// FollowTrustdCertificates is the same for trustd.
func FollowTrustdCertificates(ctx context.Context, log *slog.Logger, socket string, apply func(TrustdCertificatesSpec)) error {
	pointer := NewTrustdCertificates(TrustdCertificatesSpec{}).Metadata()
	return follow(ctx, log, socket, pointer, func(r resource.Resource) error {
		decoded, err := DecodeTrustdCertificates(r)
		if err == nil {
			apply(*decoded.TypedSpec())
		}
		return err
	})
}

func follow(ctx context.Context, log *slog.Logger, socket string, pointer resource.Pointer, apply func(resource.Resource) error) error {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return fmt.Errorf("connecting to %s: %w", socket, err)
	}
	defer func() { _ = conn.Close() }()
	store := client.NewAdapter(v1alpha1.NewStateClient(conn), client.WithDisableWatchRetry())
	last := "" // says each trouble once
	for {
		err := followOnce(ctx, store, pointer, apply)
		if ctx.Err() != nil {
			return nil
		}
		if err != nil && err.Error() != last {
			last = err.Error()
			log.Warn("watching machined's resources, will try again", "socket", socket, "resource", pointer.Type(), "error", err)
		}
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(followPause):
			conn.Connect() // machined may be back: do not wait for the connection's own, longer pauses
			conn.ResetConnectBackoff()
		}
	}
}

func followOnce(ctx context.Context, store cosi.CoreState, pointer resource.Pointer, apply func(resource.Resource) error) error {
	ctx, cancel := context.WithCancel(ctx)
	defer cancel()
	events := make(chan cosi.Event)
	if err := store.Watch(ctx, pointer, events, cosi.WithWatchUnmarshalOptions(cosi.WithSkipProtobufUnmarshal())); err != nil {
		return err
	}
	for {
		select {
		case <-ctx.Done():
			return ctx.Err()
		case event, ok := <-events:
			switch {
			case !ok:
				return errors.New("the watch ended")
			case event.Type == cosi.Errored:
				return event.Error
			case event.Type == cosi.Created || event.Type == cosi.Updated:
				if err := apply(event.Resource); err != nil {
					return err
				}
			}
		}
	}
}
