package state

import (
	"bytes"
	"fmt"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/resource/protobuf"
	"github.com/cosi-project/runtime/pkg/resource/typed"
	"github.com/siderolabs/protoenc"

	"github.com/talos-factory/talos-factory/config/secret"
)

// SecretsNamespace is where key material lives. Nothing in it is written to disk.
const SecretsNamespace resource.Namespace = "secrets"

// The resources that apid and trustd watch. There is one of each, under these IDs.
const (
	APICertificatesType    resource.Type = "ApiCertificates.secrets.talos.dev"
	APICertificatesID      resource.ID   = "api"
	TrustdCertificatesType resource.Type = "TrustdCertificates.secrets.talos.dev"
	TrustdCertificatesID   resource.ID   = "trustd"
)

// KeyPair is a certificate and its private key, PEM (the key PKCS #8).
type KeyPair struct {
	Crt []byte     `protobuf:"1"`
	Key secret.Key `protobuf:"2"`
}

// IsZero says that there is no certificate.
func (p KeyPair) IsZero() bool { return len(p.Crt) == 0 }

// DeepCopy makes a copy that shares no memory.
func (p KeyPair) DeepCopy() KeyPair {
	return KeyPair{Crt: bytes.Clone(p.Crt), Key: p.Key.Clone()}
}

// MarshalYAML shows the certificate and says whether there is a key: what is read through
// the API is for people, the daemons read the protobuf form.
func (p KeyPair) MarshalYAML() (any, error) {
	return map[string]any{"crt": string(p.Crt), "key": present(len(p.Key))}, nil
}

func present(length int) string {
	if length == 0 {
		return ""
	}
	return "(secret)"
}

// APICertificatesSpec is all that apid needs to serve.
type APICertificatesSpec struct {
	// Maintenance: the machine has no configuration. Callers need no certificate and have
	// no role.
	Maintenance bool `yaml:"maintenance" protobuf:"1"`
	// AcceptedCAs sign clients and other nodes; PEM, one after another.
	AcceptedCAs []byte `yaml:"acceptedCAs" protobuf:"2"`
	// Server is what apid shows to callers. In maintenance it is self-signed.
	Server KeyPair `yaml:"server" protobuf:"3"`
	// Client is what apid shows to other nodes when it forwards. Only control planes have it.
	Client KeyPair `yaml:"client" protobuf:"4"`
}

// DeepCopy makes a copy that shares no memory.
func (s APICertificatesSpec) DeepCopy() APICertificatesSpec {
	s.AcceptedCAs = bytes.Clone(s.AcceptedCAs)
	s.Server, s.Client = s.Server.DeepCopy(), s.Client.DeepCopy()
	return s
}

// MarshalProto is what the COSI server sends.
func (s *APICertificatesSpec) MarshalProto() ([]byte, error) { return protoenc.Marshal(s) }

// UnmarshalProto reads what MarshalProto wrote.
func (s *APICertificatesSpec) UnmarshalProto(data []byte) error { return protoenc.Unmarshal(data, s) }

// APICertificates is the resource that apid watches.
type APICertificates = typed.Resource[APICertificatesSpec, apiCertificatesExtension]

// NewAPICertificates returns the resource, ready to be created in a state.
func NewAPICertificates(spec APICertificatesSpec) *APICertificates {
	md := resource.NewMetadata(SecretsNamespace, APICertificatesType, APICertificatesID, resource.VersionUndefined)
	return typed.NewResource[APICertificatesSpec, apiCertificatesExtension](md, spec)
}

// DecodeAPICertificates takes what a state of this process or a remote one returned.
// Remote reads must be made with state.WithSkipProtobufUnmarshal, as no type is registered
// with COSI's process-wide table.
func DecodeAPICertificates(r resource.Resource) (*APICertificates, error) {
	return decode(r, NewAPICertificates(APICertificatesSpec{}))
}

type apiCertificatesExtension struct{}

func (apiCertificatesExtension) ResourceDefinition() meta.ResourceDefinitionSpec {
	return meta.ResourceDefinitionSpec{
		Type:             APICertificatesType,
		DefaultNamespace: SecretsNamespace,
		Sensitivity:      meta.Sensitive,
		PrintColumns:     []meta.PrintColumn{{Name: "Maintenance", JSONPath: "{.maintenance}"}},
	}
}

// TrustdCertificatesSpec is all that trustd needs to serve.
type TrustdCertificatesSpec struct {
	// CA signs the servers' certificates.
	CA KeyPair `yaml:"ca" protobuf:"1"`
	// AcceptedCAs go back to the caller with its certificate; PEM, one after another.
	AcceptedCAs []byte `yaml:"acceptedCAs" protobuf:"2"`
	// Token is what a caller must know.
	Token secret.Key `yaml:"-" protobuf:"3"`
	// Server is what trustd shows to callers.
	Server KeyPair `yaml:"server" protobuf:"4"`
}

// DeepCopy makes a copy that shares no memory.
func (s TrustdCertificatesSpec) DeepCopy() TrustdCertificatesSpec {
	s.AcceptedCAs, s.Token = bytes.Clone(s.AcceptedCAs), s.Token.Clone()
	s.CA, s.Server = s.CA.DeepCopy(), s.Server.DeepCopy()
	return s
}

// MarshalProto is what the COSI server sends.
func (s *TrustdCertificatesSpec) MarshalProto() ([]byte, error) { return protoenc.Marshal(s) }

// UnmarshalProto reads what MarshalProto wrote.
func (s *TrustdCertificatesSpec) UnmarshalProto(data []byte) error {
	return protoenc.Unmarshal(data, s)
}

// TrustdCertificates is the resource that trustd watches.
type TrustdCertificates = typed.Resource[TrustdCertificatesSpec, trustdCertificatesExtension]

// NewTrustdCertificates returns the resource, ready to be created in a state.
func NewTrustdCertificates(spec TrustdCertificatesSpec) *TrustdCertificates {
	md := resource.NewMetadata(SecretsNamespace, TrustdCertificatesType, TrustdCertificatesID, resource.VersionUndefined)
	return typed.NewResource[TrustdCertificatesSpec, trustdCertificatesExtension](md, spec)
}

// DecodeTrustdCertificates is like DecodeAPICertificates.
func DecodeTrustdCertificates(r resource.Resource) (*TrustdCertificates, error) {
	return decode(r, NewTrustdCertificates(TrustdCertificatesSpec{}))
}

type trustdCertificatesExtension struct{}

func (trustdCertificatesExtension) ResourceDefinition() meta.ResourceDefinitionSpec {
	return meta.ResourceDefinitionSpec{
		Type:             TrustdCertificatesType,
		DefaultNamespace: SecretsNamespace,
		Sensitivity:      meta.Sensitive,
	}
}

func decode[T interface {
	resource.Resource
	protobuf.ResourceUnmarshaler
}](r resource.Resource, into T) (T, error) {
	if same, ok := r.(T); ok {
		return same, nil
	}
	remote, ok := r.(*protobuf.Resource)
	if !ok {
		return into, fmt.Errorf("internal error: resource %s is a %T", resource.String(r), r)
	}
	if err := remote.Unmarshal(into); err != nil {
		return into, fmt.Errorf("decoding %s: %w", resource.String(r), err)
	}
	return into, nil
}
