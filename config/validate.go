package config

import (
	"crypto/x509"
	"encoding/pem"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/talos-factory/talos-factory/config/pki"
)

// Validate checks what the schema alone cannot say. It reports every fault, each with its
// field.
func (c *Config) Validate() error {
	v := &validation{}
	v.check("version", c.Version == Version, "want %q, is %q", Version, c.Version)
	v.machine(&c.Machine)
	v.cluster(&c.Cluster)
	return errors.Join(v.faults...)
}

type validation struct{ faults []error }

func (v *validation) check(field string, ok bool, format string, args ...any) {
	if !ok {
		v.faults = append(v.faults, fmt.Errorf("%s: %s", field, fmt.Sprintf(format, args...)))
	}
}

func (v *validation) machine(m *Machine) {
	v.check("machine.type", m.Type == ControlPlane || m.Type == Worker, "want %s or %s, is %q", ControlPlane, Worker, m.Type)
	v.check("machine.token", m.Token != "", "is missing")
	v.ca(m)
	for i, san := range m.CertSANs {
		_, err := netip.ParseAddr(san)
		v.check(fmt.Sprintf("machine.certSANs[%d]", i), err == nil || isHostname(san), "%q is neither a name nor an address", san)
	}
	if m.Network.Hostname != "" {
		v.check("machine.network.hostname", isHostname(m.Network.Hostname), "%q is no host name", m.Network.Hostname)
	}
	for i, server := range m.Network.Nameservers {
		_, err := netip.ParseAddr(server)
		v.check(fmt.Sprintf("machine.network.nameservers[%d]", i), err == nil, "%q is no IP address", server)
	}
	if m.Install.Disk != "" {
		v.check("machine.install.disk", strings.HasPrefix(m.Install.Disk, "/dev/"), "%q is not below /dev", m.Install.Disk)
	}
	v.registries(&m.Registries)
	for _, name := range slices.Sorted(maps.Keys(m.Sysctls)) {
		v.check("machine.sysctls."+name, sysctlName.MatchString(name), "is no sysctl's name, such as net.ipv4.ip_forward")
	}
}

func (v *validation) ca(m *Machine) {
	crt, err := pki.ParseCertificate(m.CA.Crt)
	v.check("machine.ca.crt", err == nil, "%v", err)
	v.check("machine.ca.crt", err != nil || crt.IsCA, "is not a CA's certificate")
	switch {
	case m.Type == ControlPlane && len(m.CA.Key) == 0:
		v.check("machine.ca.key", false, "is missing: a control plane signs certificates")
	case len(m.CA.Key) > 0 && err == nil:
		_, err := m.CA.TLS()
		v.check("machine.ca.key", err == nil, "%v", err)
	}
	for i, accepted := range m.AcceptedCAs {
		_, err := pki.ParseCertificate(accepted.Crt)
		v.check(fmt.Sprintf("machine.acceptedCAs[%d].crt", i), err == nil, "%v", err)
	}
}

func (v *validation) cluster(c *Cluster) {
	_, err := endpointHost(c.ControlPlane.Endpoint)
	v.check("cluster.controlPlane.endpoint", err == nil, "%v", err)
	if c.Network.DNSDomain != "" {
		v.check("cluster.network.dnsDomain", isHostname(c.Network.DNSDomain), "%q is no domain name", c.Network.DNSDomain)
	}
	v.subnets("cluster.network.podSubnets", c.Network.PodSubnets)
	v.subnets("cluster.network.serviceSubnets", c.Network.ServiceSubnets)
}

func (v *validation) subnets(field string, subnets []string) {
	for i, subnet := range subnets {
		prefix, err := netip.ParsePrefix(subnet)
		v.check(fmt.Sprintf("%s[%d]", field, i), err == nil && prefix == prefix.Masked(), "%q is no subnet, such as 10.244.0.0/16", subnet)
	}
}

// Host is the control plane's name or address, without a port.
func (e Endpoint) Host() string {
	host, _ := endpointHost(e.Endpoint)
	return host
}

func endpointHost(endpoint string) (string, error) {
	u, err := url.Parse(endpoint)
	if err != nil || u.Scheme != "https" || u.Hostname() == "" || u.User != nil {
		return "", fmt.Errorf("%q is no URL such as https://10.0.0.2:6443", endpoint)
	}
	if _, err := netip.ParseAddr(u.Hostname()); err != nil && !isHostname(u.Hostname()) {
		return "", fmt.Errorf("%q is neither a name nor an address", u.Hostname())
	}
	return u.Hostname(), nil
}

// TrustedCAs are the certificates of all CAs whose clients and nodes are let in, PEM.
func (m *Machine) TrustedCAs() []byte {
	var all []byte
	for _, data := range append([][]byte{m.CA.Crt}, acceptedPEM(m.AcceptedCAs)...) {
		if crt, err := pki.ParseCertificate(data); err == nil {
			all = append(all, encodeCertificate(crt)...)
		}
	}
	return all
}

func acceptedPEM(accepted []Accepted) [][]byte {
	all := make([][]byte, len(accepted))
	for i := range accepted {
		all[i] = accepted[i].Crt
	}
	return all
}

func encodeCertificate(crt *x509.Certificate) []byte {
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: crt.Raw})
}

var (
	// RFC 1123 2.1: letters, digits and inner hyphens, at most 63 a label, 253 in all.
	hostLabel  = regexp.MustCompile(`^[a-zA-Z0-9]([a-zA-Z0-9-]{0,61}[a-zA-Z0-9])?$`)
	sysctlName = regexp.MustCompile(`^[a-zA-Z0-9_-]+([./][a-zA-Z0-9_-]+)+$`)
)

func isHostname(name string) bool {
	if len(name) > 253 {
		return false
	}
	for label := range strings.SplitSeq(name, ".") {
		if !hostLabel.MatchString(label) {
			return false
		}
	}
	return true
}
