//go:build linux

package certs

import (
	"net"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/config/generate"
	"github.com/talos-factory/talos-factory/config/pki"
)

func cluster(t *testing.T) *generate.Bundle {
	t.Helper()

	secrets, err := generate.NewSecrets(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	b, err := generate.Generate(generate.Cluster{Name: "c", Endpoint: "https://cp.example.org:6443"}, secrets, time.Now())
	if err != nil {
		t.Fatal(err)
	}

	return b
}

func TestMaintenance(t *testing.T) {
	spec, fingerprint, err := Maintenance(time.Now())
	if err != nil {
		t.Fatal(err)
	}
	crt, err := pki.ParseCertificate(spec.Server.Crt)
	if err != nil {
		t.Fatal(err)
	}
	if !spec.Maintenance || pki.Fingerprint(crt) != fingerprint || fingerprint == "" {
		t.Errorf("got maintenance %v, fingerprint %q", spec.Maintenance, fingerprint)
	}
}

func TestControlPlane(t *testing.T) {
	c := cluster(t).ControlPlane
	hosts := Hosts(c, []string{"n1", ""}, []net.IP{net.IPv4(10, 0, 2, 15), net.IPv4(127, 0, 0, 1)})
	if diff := cmp.Diff([]string{"127.0.0.1", "::1", "localhost", "n1", "10.0.2.15", "cp.example.org"}, hosts); diff != "" {
		t.Errorf("hosts (-want +got):\n%s", diff)
	}

	api, trustd, err := ControlPlane(c, time.Now(), hosts)
	if err != nil {
		t.Fatal(err)
	}
	crt, err := pki.ParseCertificate(api.Server.Crt)
	if err != nil {
		t.Fatal(err)
	}
	ca, err := pki.ParseCertificate(c.Machine.CA.Crt)
	if err != nil {
		t.Fatal(err)
	}
	if err := crt.CheckSignatureFrom(ca); err != nil {
		t.Error(err)
	}
	for _, host := range []string{"10.0.2.15", "cp.example.org", "n1"} {
		if err := crt.VerifyHostname(host); err != nil {
			t.Error(err)
		}
	}
	if api.Maintenance || len(trustd.Token) == 0 || api.Client.IsZero() {
		t.Errorf("got %v, %v", api.Maintenance, api.Client.IsZero())
	}
}

func TestWorkerAsksTheControlPlane(t *testing.T) {
	b := cluster(t)
	host, err := controlPlane(b.Worker)
	if err != nil || host != "cp.example.org" {
		t.Errorf("got %q, %v", host, err)
	}
	// A worker holds no CA key, so it cannot sign for itself.
	if _, _, err := ControlPlane(b.Worker, time.Now(), nil); err == nil {
		t.Error("a worker signed a certificate")
	}
}
