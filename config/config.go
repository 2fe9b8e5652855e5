// Package config is the machine configuration: one YAML document that says what a machine
// is. It reads it strictly, says exactly where it is wrong, and writes it.
//
// The names are those of the public v1alpha1 schema. What we do not honour is refused,
// except the parts about Kubernetes that the field's generators always write: those are
// accepted and reported by Warnings. The package does not fetch, store or apply anything.
package config

import (
	"go.yaml.in/yaml/v4"

	"github.com/talos-factory/talos-factory/config/pki"
	"github.com/talos-factory/talos-factory/config/secret"
	"github.com/talos-factory/talos-factory/config/strict"
)

// Version is the only schema version there is.
const Version = "v1alpha1"

// Type says what part a machine has in its cluster.
type Type string

// The types.
const (
	ControlPlane Type = "controlplane"
	Worker       Type = "worker"
)

// Config is a whole machine configuration. Printing it shows no secrets; Encode writes
// them.
type Config struct {
	Version string  `yaml:"version"`
	Debug   bool    `yaml:"debug"`   // more detail on the console
	Persist bool    `yaml:"persist"` // always true in the field; a false is accepted and has no effect
	Machine Machine `yaml:"machine"`
	Cluster Cluster `yaml:"cluster"`

	warnings []string
}

// Machine is the machine's own part.
type Machine struct {
	Type Type `yaml:"type"`
	// Token proves to trustd that a machine belongs to the cluster.
	Token secret.Text `yaml:"token"`
	// CA is the API's. Only control planes have its key.
	CA pki.Pair `yaml:"ca"`
	// AcceptedCAs are further CAs whose clients and nodes are let in, for a CA's rotation.
	AcceptedCAs []Accepted `yaml:"acceptedCAs,omitempty"`
	// CertSANs are further names and addresses for the server certificates.
	CertSANs []string          `yaml:"certSANs"`
	Network  Network           `yaml:"network"`
	Install  Install           `yaml:"install"`
	Sysctls  map[string]string `yaml:"sysctls,omitempty"`

	Registries Registries `yaml:"registries,omitempty"`

	Kubelet    strict.Unused `yaml:"kubelet,omitempty"`
	Features   strict.Unused `yaml:"features,omitempty"`
	NodeLabels strict.Unused `yaml:"nodeLabels,omitempty"`
}

// Accepted is a CA without its key.
type Accepted struct {
	Crt secret.PEM `yaml:"crt"`
}

// Network is how the machine presents itself and whom it asks.
type Network struct {
	Hostname    string   `yaml:"hostname,omitempty"`
	Nameservers []string `yaml:"nameservers,omitempty"` // instead of DHCP's
}

// Install says where the system goes when a machine that was started from an ISO or the network installs itself. Without a disk
// it does not, and runs from memory.
type Install struct {
	Disk  string `yaml:"disk,omitempty"`
	Image string `yaml:"image,omitempty"` // of the installer, "registry/name:tag" or "...@sha256:..."
	// Wipe lets the installation write over what the disk holds, and has all of the disk made zeros. A disk that holds
	// something is refused without it.
	Wipe            bool     `yaml:"wipe"`
	ExtraKernelArgs []string `yaml:"extraKernelArgs,omitempty"` // besides the installer's own

	GrubUseUKICmdline strict.Unused `yaml:"grubUseUKICmdline,omitempty"`
}

// Cluster is the same on all machines of a cluster, apart from keys.
type Cluster struct {
	ID           string         `yaml:"id,omitempty"`
	Secret       secret.Text    `yaml:"secret,omitempty"`
	ControlPlane Endpoint       `yaml:"controlPlane"`
	ClusterName  string         `yaml:"clusterName,omitempty"`
	Network      ClusterNetwork `yaml:"network,omitempty"`
	// Token is what kubelets join with.
	Token secret.Text `yaml:"token,omitempty"`

	CA                             strict.Unused `yaml:"ca,omitempty"`
	AggregatorCA                   strict.Unused `yaml:"aggregatorCA,omitempty"`
	AllowSchedulingOnControlPlanes strict.Unused `yaml:"allowSchedulingOnControlPlanes,omitempty"`
	APIServer                      strict.Unused `yaml:"apiServer,omitempty"`
	ControllerManager              strict.Unused `yaml:"controllerManager,omitempty"`
	CoreDNS                        strict.Unused `yaml:"coreDNS,omitempty"`
	Discovery                      strict.Unused `yaml:"discovery,omitempty"`
	Etcd                           strict.Unused `yaml:"etcd,omitempty"`
	Proxy                          strict.Unused `yaml:"proxy,omitempty"`
	Scheduler                      strict.Unused `yaml:"scheduler,omitempty"`
	SecretboxEncryptionSecret      strict.Unused `yaml:"secretboxEncryptionSecret,omitempty"`
	ServiceAccount                 strict.Unused `yaml:"serviceAccount,omitempty"`
}

// Endpoint is where the control plane is reached. Its host is also where workers find trustd.
type Endpoint struct {
	Endpoint string `yaml:"endpoint"`
}

// ClusterNetwork is the address plan.
type ClusterNetwork struct {
	DNSDomain      string   `yaml:"dnsDomain,omitempty"`
	PodSubnets     []string `yaml:"podSubnets,omitempty"`
	ServiceSubnets []string `yaml:"serviceSubnets,omitempty"`
}

// String names the configuration and shows nothing of it.
func (c *Config) String() string {
	return "machine configuration (" + string(c.Machine.Type) + ")"
}

// Warnings names the parts of the configuration that have no effect.
func (c *Config) Warnings() []string { return c.warnings }

// Encode writes the configuration as YAML, secrets included.
func (c *Config) Encode() ([]byte, error) { return yaml.Dump(c) }
