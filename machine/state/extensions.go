package state

import (
	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/resource/typed"
)

// ExtensionStatusSpec is one system extension that the image was given. Written by machined's boot.
type ExtensionStatusSpec struct {
	Image    string            `yaml:"image"`
	Metadata ExtensionMetadata `yaml:"metadata"`
}

// ExtensionMetadata is what the extension's manifest says of it.
type ExtensionMetadata struct {
	Name          string                 `yaml:"name"`
	Version       string                 `yaml:"version"`
	Author        string                 `yaml:"author"`
	Description   string                 `yaml:"description"`
	Compatibility ExtensionCompatibility `yaml:"compatibility"`
	ExtraInfo     string                 `yaml:"extraInfo,omitempty"`
}

// ExtensionCompatibility is the range of versions it is for.
type ExtensionCompatibility struct {
	Talos struct {
		Version string `yaml:"version"`
	} `yaml:"talos"`
}

// DeepCopy implements typed.DeepCopyable.
func (s ExtensionStatusSpec) DeepCopy() ExtensionStatusSpec { return s }

// MarshalProto implements protobuf.ProtoMarshaler: there is no protobuf form.
func (ExtensionStatusSpec) MarshalProto() ([]byte, error) { return nil, nil }

// ExtensionStatus is ExtensionStatusSpec as a resource; its ID is the extension's place in the stack and its name, "00-gvisor".
type ExtensionStatus = typed.Resource[ExtensionStatusSpec, extensionStatusRD]

// ExtensionStatusType is the public name of the type.
const ExtensionStatusType = resource.Type("ExtensionStatuses.runtime.talos.dev")

// NewExtensionStatus returns one extension.
func NewExtensionStatus(id string, spec ExtensionStatusSpec) *ExtensionStatus {
	return newResource[extensionStatusRD](Runtime, ExtensionStatusType, id, spec)
}

type extensionStatusRD struct{}

func (extensionStatusRD) ResourceDefinition() meta.ResourceDefinitionSpec {
	return definition(ExtensionStatusType, Runtime, []resource.Type{"extensions"}, "Name", "{.metadata.name}", "Version", "{.metadata.version}")
}
