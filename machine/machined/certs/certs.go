//go:build linux

// Package certs decides which certificates apid and trustd serve with: a self-signed one in maintenance mode, on a control plane
// ones that its own CA signs, on a worker one that the control plane's trustd signs.
//
// It does not serve, keep or renew anything; the keys exist in memory only.
package certs

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/talos-factory/talos-factory/config"
	"github.com/talos-factory/talos-factory/config/pki"
	"github.com/talos-factory/talos-factory/machine/state"
)

// trustdPort is where control planes sign workers' requests.
const trustdPort = "50001"

// clientLifetime is how long the certificate lasts with which a control plane's apid calls others; it is issued anew far more often.
const clientLifetime = 24 * time.Hour

// impersonator is the role that may say on whose behalf it calls.
const impersonator = "os:impersonator"

// Join asks a control plane's trustd to sign a request for a server certificate. It returns the certificate and all CAs that the
// cluster accepts.
type Join func(ctx context.Context, address string, ca []byte, token string, csr []byte) (crt, cas []byte, err error)

// Maintenance returns what apid shows before there is a configuration, and the fingerprint that a person compares.
func Maintenance(now time.Time) (state.APICertificatesSpec, string, error) {
	pair, err := pki.NewSelfSigned(now, "127.0.0.1", "::1", "localhost", "talos")
	if err != nil {
		return state.APICertificatesSpec{}, "", fmt.Errorf("making the maintenance certificate: %w", err)
	}

	crt, err := pair.Certificate()
	if err != nil {
		return state.APICertificatesSpec{}, "", err
	}

	return state.APICertificatesSpec{Maintenance: true, Server: keyPair(pair)}, pki.Fingerprint(crt), nil
}

// ControlPlane returns what apid and trustd of a control plane show.
func ControlPlane(c *config.Config, now time.Time, hosts []string) (state.APICertificatesSpec, state.TrustdCertificatesSpec, error) {
	var (
		api    state.APICertificatesSpec
		trustd state.TrustdCertificatesSpec
	)

	server, err := pki.NewServer(c.Machine.CA, now, hosts...)
	if err != nil {
		return api, trustd, fmt.Errorf("signing the server certificate: %w", err)
	}

	client, err := pki.NewClient(c.Machine.CA, now, clientLifetime, impersonator)
	if err != nil {
		return api, trustd, fmt.Errorf("signing the client certificate: %w", err)
	}

	api = state.APICertificatesSpec{AcceptedCAs: accepted(c), Server: keyPair(server), Client: keyPair(client)}
	trustd = state.TrustdCertificatesSpec{
		CA: keyPair(c.Machine.CA), AcceptedCAs: accepted(c), Token: []byte(c.Machine.Token.Reveal()), Server: keyPair(server),
	}

	return api, trustd, nil
}

// Worker returns what apid of a worker shows.
func Worker(ctx context.Context, c *config.Config, hosts []string, join Join) (state.APICertificatesSpec, error) {
	var api state.APICertificatesSpec

	if join == nil {
		return api, errors.New("cannot get a certificate: this build has no client of trustd")
	}

	address, err := trustdAddress(c.Cluster.ControlPlane.Endpoint)
	if err != nil {
		return api, err
	}

	key, csr, err := pki.Request(hosts...)
	if err != nil {
		return api, fmt.Errorf("making a certificate request: %w", err)
	}

	crt, cas, err := join(ctx, address, accepted(c), c.Machine.Token.Reveal(), csr)
	if err != nil {
		return api, fmt.Errorf("asking trustd at %s for a certificate: %w", address, err)
	}

	api.AcceptedCAs, api.Server = cas, state.KeyPair{Crt: crt, Key: key}
	if len(cas) == 0 {
		api.AcceptedCAs = accepted(c)
	}

	return api, nil
}

func trustdAddress(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Hostname() == "" {
		return "", fmt.Errorf("cannot find trustd: cluster.controlPlane.endpoint %q has no host", endpoint)
	}

	return net.JoinHostPort(u.Hostname(), trustdPort), nil
}

func keyPair(p pki.Pair) state.KeyPair { return state.KeyPair{Crt: p.Crt, Key: p.Key} }

// accepted are the CAs whose clients and nodes are let in, PEM one after another.
func accepted(c *config.Config) []byte {
	all := [][]byte{bytes.TrimSpace(c.Machine.CA.Crt)}
	for _, a := range c.Machine.AcceptedCAs {
		all = append(all, bytes.TrimSpace(a.Crt))
	}

	return append(bytes.Join(all, []byte("\n")), '\n')
}

// Hosts are the names and addresses a machine may be called by, without repetition.
func Hosts(c *config.Config, names []string, addresses []net.IP) []string {
	hosts := []string{"127.0.0.1", "::1", "localhost"}

	add := func(list ...string) {
		for _, h := range list {
			if h != "" && !slices.Contains(hosts, h) {
				hosts = append(hosts, h)
			}
		}
	}

	add(names...)

	for _, ip := range addresses {
		add(ip.String())
	}

	add(c.Machine.CertSANs...)

	if u, err := url.Parse(c.Cluster.ControlPlane.Endpoint); err == nil && c.Machine.Type == config.ControlPlane {
		add(u.Hostname())
	}

	return hosts
}
