//go:build linux

package containers

import (
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"net/http"
	"net/url"
	"path"
	"time"

	"github.com/containerd/containerd/v2/core/remotes/docker"

	"github.com/talos-factory/talos-factory/config"
)

// SetRegistries says where images come from, from the next pull on.
func (c *Client) SetRegistries(r config.Registries) {
	c.mu.Lock()
	defer c.mu.Unlock()

	c.registries = r
}

// hosts is whom to ask for an image of a registry, in order: its mirrors, then itself.
func hosts(r config.Registries) docker.RegistryHosts {
	return func(registry string) ([]docker.RegistryHost, error) {
		mirror, ok := r.Mirrors[registry]
		if !ok {
			mirror, ok = r.Mirrors["*"]
		}

		var out []docker.RegistryHost

		for _, endpoint := range mirror.Endpoints {
			u, err := url.Parse(endpoint)
			if err != nil {
				return nil, err
			}

			prefix := path.Join("/", u.Path)
			if !mirror.OverridePath {
				prefix = path.Join(prefix, "/v2")
			}

			host, err := hostOf(r, u.Scheme, u.Host, prefix)
			if err != nil {
				return nil, err
			}

			out = append(out, host)
		}

		if ok && mirror.SkipFallback {
			return out, nil
		}

		name, err := docker.DefaultHost(registry)
		if err != nil {
			return nil, err
		}

		scheme := "https"
		if local, err := docker.MatchLocalhost(registry); err == nil && local {
			scheme = "http"
		}

		host, err := hostOf(r, scheme, name, "/v2")

		return append(out, host), err
	}
}

// hostOf says how to talk to one.
func hostOf(r config.Registries, scheme, name, prefix string) (docker.RegistryHost, error) {
	settings := r.Config[name]

	transport, err := transportOf(settings.TLS)
	if err != nil {
		return docker.RegistryHost{}, fmt.Errorf("registry %s: %w", name, err)
	}

	client := &http.Client{Transport: transport}
	account := func(string) (string, string, error) { return settings.Auth.Account() }

	return docker.RegistryHost{
		Client: client, Host: name, Scheme: scheme, Path: prefix,
		Capabilities: docker.HostCapabilityPull | docker.HostCapabilityResolve,
		Authorizer:   docker.NewDockerAuthorizer(docker.WithAuthClient(client), docker.WithAuthCreds(account)),
	}, nil
}

// responseTimeout bounds the wait for a registry's answer, not the transfer.
const responseTimeout = 30 * time.Second

func transportOf(t config.RegistryTLS) (*http.Transport, error) {
	settings := &tls.Config{MinVersion: tls.VersionTLS12, InsecureSkipVerify: t.InsecureSkipVerify} // the configuration asks for it

	if len(t.CA) > 0 {
		pool, err := x509.SystemCertPool()
		if err != nil {
			return nil, fmt.Errorf("reading the public authorities: %w", err)
		}

		pool.AppendCertsFromPEM(t.CA)
		settings.RootCAs = pool
	}

	transport := docker.DefaultHTTPTransport(settings)
	transport.ResponseHeaderTimeout = responseTimeout

	return transport, nil
}
