//go:build linux

package containers

import (
	"context"
	"crypto/rand"
	"fmt"
	"io"
	"slices"
	"sync"
	"syscall"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/pkg/cio"
	"github.com/containerd/containerd/v2/pkg/oci"
	"github.com/containerd/errdefs"
	"github.com/opencontainers/runtime-spec/specs-go"
)

// Job is a container that is run once and deleted.
type Job struct {
	Namespace, Image string
	Args             []string          // instead of the image's, if there are any
	Env              map[string]string // besides the image's
	// Privileged gives the host's process and network namespaces, all capabilities and all devices.
	Privileged bool
	// HostDev shows the host's /dev as it is and changes, where a privileged job sees the devices there were at its start.
	HostDev        bool
	Stdin          io.Reader // may be nil
	Stdout, Stderr io.Writer
	Signals        <-chan syscall.Signal // may be nil
}

// Run runs the job and returns its exit status. When ctx ends, the container is killed; it is deleted in any case.
func (c *Client) Run(ctx context.Context, job Job) (code uint32, err error) {
	client, ctx, err := c.dial(ctx, job.Namespace)
	if err != nil {
		return 0, err
	}
	defer client.Close()

	img, err := client.GetImage(ctx, job.Image)
	if err != nil {
		return 0, fmt.Errorf("finding image %s: %w", job.Image, err)
	}

	id := "run-" + rand.Text()[:12]
	cleanup := context.WithoutCancel(ctx)

	container, err := client.NewContainer(ctx, id, containerd.WithImage(img), containerd.WithNewSnapshot(id, img),
		containerd.WithNewSpec(specOptions(job, img)...))
	if err != nil {
		return 0, fmt.Errorf("creating the container: %w", err)
	}
	defer func() { err = orFirst(err, container.Delete(cleanup, containerd.WithSnapshotCleanup)) }()

	input := newInput(job.Stdin)

	task, err := container.NewTask(ctx, cio.NewCreator(cio.WithStreams(input.reader(), job.Stdout, job.Stderr)))
	if err != nil {
		return 0, fmt.Errorf("creating the container's process: %w", err)
	}
	defer func() {
		_, derr := task.Delete(cleanup, containerd.WithProcessKill)
		err = orFirst(err, derr)
	}()

	exited, err := task.Wait(cleanup)
	if err != nil {
		return 0, fmt.Errorf("waiting for the container: %w", err)
	}

	if err := task.Start(ctx); err != nil {
		return 0, fmt.Errorf("starting the container: %w", err)
	}

	ended := input.ended

	for {
		select {
		case <-ended: // the shim holds the other end open until it is told
			ended = nil

			if err := task.CloseIO(ctx, containerd.WithStdinCloser); err != nil && !gone(err) {
				return 0, fmt.Errorf("closing the container's input: %w", err)
			}
		case status := <-exited:
			task.IO().Wait() // the rest of its output

			code, _, err := status.Result()

			return code, err
		case sig := <-job.Signals:
			if err := task.Kill(ctx, sig); err != nil && !gone(err) {
				return 0, fmt.Errorf("sending signal %d: %w", sig, err)
			}
		case <-ctx.Done():
			return 0, ctx.Err()
		}
	}
}

// gone says that the process has ended before it could be told something. Its exit status is on its way.
func gone(err error) bool { return errdefs.IsNotFound(err) || errdefs.IsFailedPrecondition(err) }

// input is a job's standard input that tells of its end.
type input struct {
	from  io.Reader
	once  sync.Once
	ended chan struct{}
}

func newInput(from io.Reader) *input { return &input{from: from, ended: make(chan struct{})} }

// reader is nil without an input, which containerd takes to mean /dev/null.
func (i *input) reader() io.Reader {
	if i.from == nil {
		return nil
	}

	return i
}

func (i *input) Read(p []byte) (int, error) {
	n, err := i.from.Read(p)
	if err != nil {
		i.once.Do(func() { close(i.ended) })
	}

	return n, err
}

func orFirst(first, second error) error {
	if first != nil {
		return first
	}

	return second
}

func specOptions(job Job, img containerd.Image) []oci.SpecOpts {
	opts := []oci.SpecOpts{oci.WithImageConfig(img)}
	if len(job.Args) > 0 {
		opts = append(opts, oci.WithProcessArgs(job.Args...))
	}

	var env []string
	for key, value := range job.Env {
		env = append(env, key+"="+value)
	}

	slices.Sort(env)

	opts = append(opts, oci.WithEnv(env))

	if job.Privileged {
		opts = append(opts,
			oci.WithPrivileged, oci.WithAllDevicesAllowed, oci.WithHostDevices, oci.WithNewPrivileges,
			oci.WithHostNamespace(specs.PIDNamespace), oci.WithHostNamespace(specs.NetworkNamespace),
			oci.WithHostHostsFile, oci.WithHostResolvconf,
		)
	}

	if job.HostDev {
		opts = append(opts,
			oci.WithoutMounts("/dev", "/dev/pts", "/dev/shm", "/dev/mqueue"),
			oci.WithMounts([]specs.Mount{{Type: "bind", Source: "/dev", Destination: "/dev", Options: []string{"rbind", "rslave", "rw"}}}))
	}

	return opts
}
