// Package generate makes a new cluster's secrets, and from them the configurations of its
// machines and of its first client. It writes no files.
package generate

import (
	"crypto/rand"
	"encoding/base64"
	"fmt"
	"math/big"
	"time"

	"go.yaml.in/yaml/v4"

	"github.com/talos-factory/talos-factory/config"
	"github.com/talos-factory/talos-factory/config/pki"
	"github.com/talos-factory/talos-factory/config/secret"
	"github.com/talos-factory/talos-factory/config/talosconfig"
)

// Secrets is all that makes two clusters of the same name different. Whoever has it can
// make himself administrator, and make any machine's configuration again.
type Secrets struct {
	Cluster Identity `yaml:"cluster"`
	Tokens  Tokens   `yaml:"trustdinfo"`
	Certs   Certs    `yaml:"certs"`
	Join    Join     `yaml:"secrets"`
}

// Identity is how members know each other.
type Identity struct {
	ID     string      `yaml:"id"`
	Secret secret.Text `yaml:"secret"`
}

// Tokens is what a machine shows to trustd.
type Tokens struct {
	Token secret.Text `yaml:"token"`
}

// Join is what a kubelet shows.
type Join struct {
	BootstrapToken secret.Text `yaml:"bootstraptoken"`
}

// Certs holds the CAs; so far the API's.
type Certs struct {
	OS pki.Pair `yaml:"os"`
}

// NewSecrets makes new ones.
func NewSecrets(now time.Time) (*Secrets, error) {
	ca, err := pki.NewCA("talos", now)
	if err != nil {
		return nil, err
	}
	return &Secrets{
		Cluster: Identity{
			ID:     base64.URLEncoding.EncodeToString(random(32)),
			Secret: secret.Text(base64.StdEncoding.EncodeToString(random(32))),
		},
		Tokens: Tokens{Token: token()},
		Join:   Join{BootstrapToken: token()},
		Certs:  Certs{OS: ca},
	}, nil
}

// ParseSecrets reads what Encode wrote.
func ParseSecrets(data []byte) (*Secrets, error) {
	s := &Secrets{}
	if err := yaml.Load(data, s); err != nil {
		return nil, fmt.Errorf("not a secrets file: %w", err)
	}
	if _, err := s.Certs.OS.TLS(); err != nil {
		return nil, fmt.Errorf("not a secrets file: certs.os: %w", err)
	}
	if s.Tokens.Token == "" {
		return nil, fmt.Errorf("not a secrets file: trustdinfo.token is missing")
	}
	return s, nil
}

// Encode gives the secrets as YAML, in full.
func (s *Secrets) Encode() ([]byte, error) { return yaml.Dump(s) }

func random(n int) []byte {
	data := make([]byte, n)
	_, _ = rand.Read(data) // never returns an error
	return data
}

// token has the form of kubeadm's: six and sixteen letters and digits. The second part,
// 82 bits, is the secret.
func token() secret.Text {
	const alphabet = "abcdefghijklmnopqrstuvwxyz0123456789"
	text := make([]byte, 0, 23)
	for i := range 22 {
		if i == 6 {
			text = append(text, '.')
		}
		n, err := rand.Int(rand.Reader, big.NewInt(int64(len(alphabet))))
		if err != nil {
			panic(err) // crypto/rand's reader never fails
		}
		text = append(text, alphabet[n.Int64()])
	}
	return secret.Text(text)
}

// Cluster is what a person decides.
type Cluster struct {
	Name     string
	Endpoint string   // https://host:6443
	SANs     []string // further names for the API's certificates
	Disk     string   // where machines install themselves; may be ""
	Image    string
	DNS      string // "" is cluster.local
}

// Bundle is what a new cluster begins with.
type Bundle struct {
	ControlPlane, Worker *config.Config
	Client               *talosconfig.Config
}

// Generate makes the configurations. They are valid, or it is an error.
func Generate(cluster Cluster, secrets *Secrets, now time.Time) (*Bundle, error) {
	client, err := pki.NewClient(secrets.Certs.OS, now, pki.ClientLifetime, "os:admin")
	if err != nil {
		return nil, err
	}
	b := &Bundle{
		ControlPlane: machine(cluster, secrets, config.ControlPlane),
		Worker:       machine(cluster, secrets, config.Worker),
		Client: &talosconfig.Config{
			Context: cluster.Name,
			Contexts: map[string]*talosconfig.Context{cluster.Name: {
				Endpoints: []string{},
				CA:        secrets.Certs.OS.Crt, Crt: client.Crt, Key: client.Key,
			}},
		},
	}
	for _, c := range []*config.Config{b.ControlPlane, b.Worker} {
		if err := c.Validate(); err != nil {
			return nil, err
		}
	}
	return b, nil
}

func machine(cluster Cluster, secrets *Secrets, kind config.Type) *config.Config {
	ca := secrets.Certs.OS
	if kind == config.Worker {
		ca.Key = nil
	}
	dns := cluster.DNS
	if dns == "" {
		dns = "cluster.local"
	}
	return &config.Config{
		Version: config.Version,
		Persist: true,
		Machine: config.Machine{
			Type: kind, Token: secrets.Tokens.Token, CA: ca,
			CertSANs: append([]string{}, cluster.SANs...),
			Install:  config.Install{Disk: cluster.Disk, Image: cluster.Image},
		},
		Cluster: config.Cluster{
			ID: secrets.Cluster.ID, Secret: secrets.Cluster.Secret,
			ControlPlane: config.Endpoint{Endpoint: cluster.Endpoint},
			ClusterName:  cluster.Name,
			Network: config.ClusterNetwork{
				DNSDomain: dns, PodSubnets: []string{"10.244.0.0/16"}, ServiceSubnets: []string{"10.96.0.0/12"},
			},
			Token: secrets.Join.BootstrapToken,
		},
	}
}
