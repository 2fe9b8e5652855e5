//go:build linux

// Package containers asks containerd: what runs, which images are there, and to run a container once for somebody who waits for it.
//
// It does not start containerd, and knows nothing of pods beyond the labels that show which container belongs to which.
package containers

import (
	"context"
	"errors"
	"fmt"
	"io"
	"path"
	"sync"
	"time"

	containerd "github.com/containerd/containerd/v2/client"
	"github.com/containerd/containerd/v2/core/images"
	"github.com/containerd/containerd/v2/core/remotes/docker"
	"github.com/containerd/containerd/v2/pkg/namespaces"
	"github.com/containerd/errdefs"

	"github.com/talos-factory/talos-factory/config"
)

// Namespaces of containerd that the machine uses.
const (
	System     = "system" // the machine's own
	Kubernetes = "k8s.io"
)

// Labels that Kubernetes' runtime interface puts on containers and pods.
const (
	labelKind      = "io.cri-containerd.kind"
	labelPod       = "io.kubernetes.pod.name"
	labelNamespace = "io.kubernetes.pod.namespace"
	labelName      = "io.kubernetes.container.name"
	labelUID       = "io.kubernetes.pod.uid"
)

// Client talks to one containerd. Every call makes its own connection, so that a restart of containerd is nothing to it.
type Client struct {
	socket string

	mu         sync.Mutex // guards what follows
	registries config.Registries
}

// New returns a client of the containerd that listens on the socket.
func New(socket string) *Client { return &Client{socket: socket} }

func (c *Client) dial(ctx context.Context, namespace string) (*containerd.Client, context.Context, error) {
	client, err := containerd.New(c.socket, containerd.WithTimeout(5*time.Second))
	if err != nil {
		return nil, nil, fmt.Errorf("connecting to containerd: %w", err)
	}

	return client, namespaces.WithNamespace(ctx, namespace), nil
}

// Healthy returns an error unless containerd answers.
func (c *Client) Healthy(ctx context.Context) error {
	client, ctx, err := c.dial(ctx, System)
	if err != nil {
		return err
	}
	defer client.Close()

	ok, err := client.IsServing(ctx)
	if err == nil && !ok {
		err = errors.New("containerd is not serving yet")
	}

	return err
}

// Container is one container.
type Container struct {
	ID, Image, Status string
	PID               uint32
	Pod, Name, UID    string // of pods only
	Sandbox           bool
}

// List returns the containers of a namespace.
func (c *Client) List(ctx context.Context, namespace string) ([]Container, error) {
	client, ctx, err := c.dial(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer client.Close()

	list, err := client.Containers(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing containers: %w", err)
	}

	out := make([]Container, 0, len(list))

	for _, item := range list {
		container, err := describe(ctx, item)
		if errdefs.IsNotFound(err) {
			continue // gone meanwhile
		}

		if err != nil {
			return nil, fmt.Errorf("looking at container %s: %w", item.ID(), err)
		}

		out = append(out, container)
	}

	return out, nil
}

func describe(ctx context.Context, item containerd.Container) (Container, error) {
	info, err := item.Info(ctx, containerd.WithoutRefreshedMetadata)
	if err != nil {
		return Container{}, err
	}

	out := Container{ID: info.ID, Image: info.Image, Status: "CREATED", Name: info.Labels[labelName], UID: info.Labels[labelUID]}
	if pod := info.Labels[labelPod]; pod != "" {
		out.Pod = path.Join(info.Labels[labelNamespace], pod)
	}

	out.Sandbox = info.Labels[labelKind] == "sandbox"

	task, err := item.Task(ctx, nil)
	if errdefs.IsNotFound(err) {
		return out, nil // created, never started
	}

	if err != nil {
		return out, err
	}

	status, err := task.Status(ctx)
	if err != nil {
		return out, err
	}

	out.PID = task.Pid()
	out.Status = map[containerd.ProcessStatus]string{
		containerd.Running: "RUNNING", containerd.Created: "CREATED", containerd.Stopped: "STOPPED", containerd.Paused: "PAUSED", containerd.Pausing: "PAUSING",
	}[status.Status]

	return out, nil
}

// Image is one image by its name.
type Image struct {
	Name, Digest string
	Size         int64
	Created      time.Time
}

// Images lists the images of a namespace.
func (c *Client) Images(ctx context.Context, namespace string) ([]Image, error) {
	client, ctx, err := c.dial(ctx, namespace)
	if err != nil {
		return nil, err
	}
	defer client.Close()

	list, err := client.ListImages(ctx)
	if err != nil {
		return nil, fmt.Errorf("listing images: %w", err)
	}

	var out []Image

	for _, img := range list {
		size, err := img.Size(ctx)
		if err != nil {
			size = 0 // parts of other platforms are not here
		}

		out = append(out, Image{Name: img.Name(), Digest: img.Target().Digest.String(), Size: size, Created: img.Metadata().CreatedAt})
	}

	return out, nil
}

// Import reads an image archive (OCI or Docker), unpacks the image for this platform and returns its name.
func (c *Client) Import(ctx context.Context, namespace string, archive io.Reader) (string, error) {
	client, ctx, err := c.dial(ctx, namespace)
	if err != nil {
		return "", err
	}
	defer client.Close()

	ctx, done, err := client.WithLease(ctx)
	if err != nil {
		return "", err
	}
	defer func() { _ = done(context.WithoutCancel(ctx)) }() // the lease ends by itself too

	list, err := client.Import(ctx, archive)
	if err != nil {
		return "", fmt.Errorf("importing an image: %w", err)
	}

	if len(list) == 0 {
		return "", errors.New("cannot import an image: the archive holds none")
	}

	if err := containerd.NewImage(client, list[0]).Unpack(ctx, ""); err != nil {
		return "", fmt.Errorf("unpacking image %s: %w", list[0].Name, err)
	}

	return list[0].Name, nil
}

// Pull fetches an image from its registry and returns its name.
func (c *Client) Pull(ctx context.Context, namespace, ref string) (string, error) {
	return c.pull(ctx, namespace, ref, containerd.WithPullUnpack)
}

// PullToRun is Pull that keeps what is unpacked and not the archives it came in: a machine without a disk has both in memory.
func (c *Client) PullToRun(ctx context.Context, namespace, ref string) (string, error) {
	return c.pull(ctx, namespace, ref, containerd.WithPullUnpack, containerd.WithChildLabelMap(images.ChildGCLabelsFilterLayers))
}

func (c *Client) pull(ctx context.Context, namespace, ref string, opts ...containerd.RemoteOpt) (string, error) {
	client, ctx, err := c.dial(ctx, namespace)
	if err != nil {
		return "", err
	}
	defer client.Close()

	c.mu.Lock()
	resolver := docker.NewResolver(docker.ResolverOptions{Hosts: hosts(c.registries)})
	c.mu.Unlock()

	img, err := client.Pull(ctx, ref, append(opts, containerd.WithResolver(resolver))...)
	if err != nil {
		return "", fmt.Errorf("pulling image %s: %w", ref, err)
	}

	return img.Name(), nil
}

// KillAll kills the processes of all containers of a namespace and deletes their tasks, for a machine that stops.
func (c *Client) KillAll(ctx context.Context, namespace string) error {
	client, ctx, err := c.dial(ctx, namespace)
	if err != nil {
		return err
	}
	defer client.Close()

	list, err := client.Containers(ctx)
	if err != nil {
		return fmt.Errorf("listing containers: %w", err)
	}

	var errs []error

	for _, item := range list {
		task, err := item.Task(ctx, nil)
		if err == nil {
			_, err = task.Delete(ctx, containerd.WithProcessKill)
		}

		if err != nil && !errdefs.IsNotFound(err) {
			errs = append(errs, fmt.Errorf("killing container %s: %w", item.ID(), err))
		}
	}

	return errors.Join(errs...)
}
