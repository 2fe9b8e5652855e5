//go:build linux

// Package certs decides which certificates apid and trustd serve with: a self-signed one in maintenance mode, on a control plane
// ones that its own CA signs, on a worker one that the control plane's trustd signs.
//
// It does not serve, keep or renew anything; the keys exist in memory only.
package certs

import (
	"bytes"
	"context"
	"fmt"
	"net"
	"net/url"
	"slices"
	"time"

	"github.com/talos-factory/talos-factory/config"
	"github.com/talos-factory/talos-factory/config/pki"
	"github.com/talos-factory/talos-factory/machine/state"
	"github.com/talos-factory/talos-factory/machine/trustclient"
)

// clientLifetime is how long the certificate lasts with which a control plane's apid calls others; it is issued anew far more often.
const clientLifetime = 24 * time.Hour

// impersonator is the role that may say on whose behalf it calls.
const impersonator = "os:impersonator"

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

// Worker returns what apid of a worker shows, as the control plane's trustd signs it.
func Worker(ctx context.Context, c *config.Config, hosts []string) (state.APICertificatesSpec, error) {
	var api state.APICertificatesSpec

	host, err := controlPlane(c)
	if err != nil {
		return api, err
	}

	pair, cas, err := trustclient.Certificate(ctx, trustclient.Request{Host: host, CAs: accepted(c), Token: c.Machine.Token, Hosts: hosts})
	if err != nil {
		return api, fmt.Errorf("asking trustd at %s for a certificate: %w", host, err)
	}

	return state.APICertificatesSpec{AcceptedCAs: cas, Server: keyPair(pair)}, nil
}

// controlPlane is the host of the cluster's endpoint.
func controlPlane(c *config.Config) (string, error) {
	u, err := url.Parse(c.Cluster.ControlPlane.Endpoint)
	if err != nil || u.Hostname() == "" {
		return "", fmt.Errorf("cannot find trustd: cluster.controlPlane.endpoint %q has no host", c.Cluster.ControlPlane.Endpoint)
	}

	return u.Hostname(), nil
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

	if host, err := controlPlane(c); err == nil && c.Machine.Type == config.ControlPlane {
		add(host)
	}

	return hosts
}
