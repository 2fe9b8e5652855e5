package state

import (
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/resource/typed"
)

// SecurityStateSpec says how far the machine was verified as it started. Written by machined's boot.
type SecurityStateSpec struct {
	SecureBoot    bool   `yaml:"secureBoot"`
	BootedWithUKI bool   `yaml:"bootedWithUKI"`
	RootVerified  bool   `yaml:"rootVerified"`       // block by block as it is read, by dm-verity
	RootHash      string `yaml:"rootHash,omitempty"` // of the hash tree
}

// DeepCopy implements typed.DeepCopyable.
func (s SecurityStateSpec) DeepCopy() SecurityStateSpec { return s }

// MarshalProto implements protobuf.ProtoMarshaler: there is no protobuf form.
func (SecurityStateSpec) MarshalProto() ([]byte, error) { return nil, nil }

// SecurityState is SecurityStateSpec as a resource with the ID SecurityStateID.
type SecurityState = typed.Resource[SecurityStateSpec, securityStateRD]

// The public names of the type and of its one resource.
const (
	SecurityStateType = resource.Type("SecurityStates.talos.dev")
	SecurityStateID   = resource.ID("securitystate")
)

// NewSecurityState returns the one security state.
func NewSecurityState(spec SecurityStateSpec) *SecurityState {
	return newResource[securityStateRD](Runtime, SecurityStateType, SecurityStateID, spec)
}

type securityStateRD struct{}

func (securityStateRD) ResourceDefinition() meta.ResourceDefinitionSpec {
	return definition(SecurityStateType, Runtime, nil, "SecureBoot", "{.secureBoot}", "BootedWithUKI", "{.bootedWithUKI}",
		"RootVerified", "{.rootVerified}", "RootHash", "{.rootHash}")
}
