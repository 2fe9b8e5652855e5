package config

import (
	"encoding/base64"
	"fmt"
	"maps"
	"net/url"
	"slices"
	"strings"

	"github.com/talos-factory/talos-factory/config/pki"
	"github.com/talos-factory/talos-factory/config/secret"
)

// Registries says where images come from. A registry is named as in an image's name: its host, with a port if there is one.
type Registries struct {
	// Mirrors are asked in place of a registry; "*" is any that is not named.
	Mirrors map[string]Mirror `yaml:"mirrors,omitempty"`
	// Config says how to talk to a registry or a mirror.
	Config map[string]Registry `yaml:"config,omitempty"`
}

// Mirror is what is asked in place of a registry.
type Mirror struct {
	Endpoints    []string `yaml:"endpoints"`              // URLs, asked in this order
	OverridePath bool     `yaml:"overridePath,omitempty"` // an endpoint's path has the /v2 in it
	SkipFallback bool     `yaml:"skipFallback,omitempty"` // do not ask the registry itself if no endpoint has it
}

// Registry is how to talk to a registry.
type Registry struct {
	TLS  RegistryTLS  `yaml:"tls,omitempty"`
	Auth RegistryAuth `yaml:"auth,omitempty"`
}

// RegistryTLS says whom to believe to be the registry.
type RegistryTLS struct {
	CA                 secret.PEM `yaml:"ca,omitempty"` // besides the public authorities
	InsecureSkipVerify bool       `yaml:"insecureSkipVerify,omitempty"`
}

// RegistryAuth is an account, as two fields or as "user:password" in base64.
type RegistryAuth struct {
	Username string      `yaml:"username,omitempty"`
	Password secret.Text `yaml:"password,omitempty"`
	Auth     secret.Text `yaml:"auth,omitempty"`
}

// Account is the name and the password, empty without an account.
func (a RegistryAuth) Account() (name, password string, err error) {
	if a.Auth == "" {
		return a.Username, a.Password.Reveal(), nil
	}
	both, err := base64.StdEncoding.DecodeString(a.Auth.Reveal())
	if err != nil {
		return "", "", fmt.Errorf("is not base64")
	}
	name, password, ok := strings.Cut(string(both), ":")
	if !ok {
		return "", "", fmt.Errorf("is not user:password")
	}
	return name, password, nil
}

func (v *validation) registries(r *Registries) {
	for _, host := range slices.Sorted(maps.Keys(r.Mirrors)) {
		field := "machine.registries.mirrors." + host
		v.check(field, host == "*" || isRegistry(host), "is no registry's name, such as registry.example.org:5000")
		v.check(field, len(r.Mirrors[host].Endpoints) > 0, "has no endpoints")
		for i, endpoint := range r.Mirrors[host].Endpoints {
			u, err := url.Parse(endpoint)
			ok := err == nil && (u.Scheme == "http" || u.Scheme == "https") && u.Host != "" && u.User == nil && u.RawQuery == "" && u.Fragment == ""
			v.check(fmt.Sprintf("%s.endpoints[%d]", field, i), ok, "%q is no URL such as https://10.0.0.2:5000", endpoint)
		}
	}
	for _, host := range slices.Sorted(maps.Keys(r.Config)) {
		field := "machine.registries.config." + host
		v.check(field, isRegistry(host), "is no registry's name, such as registry.example.org:5000")
		_, _, err := r.Config[host].Auth.Account()
		v.check(field+".auth.auth", err == nil, "%v", err)
		if ca := r.Config[host].TLS.CA; len(ca) > 0 {
			_, err := pki.ParseCertificate(ca)
			v.check(field+".tls.ca", err == nil, "%v", err)
		}
	}
}

// isRegistry says whether a host, with a port or without, is one that image names can begin with.
func isRegistry(host string) bool {
	u, err := url.Parse("https://" + host)
	return err == nil && u.Host == host && u.Hostname() != ""
}
