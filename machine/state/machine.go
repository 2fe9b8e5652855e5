package state

import (
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	metaspec "github.com/cosi-project/runtime/pkg/resource/meta/spec"
	"github.com/cosi-project/runtime/pkg/resource/typed"
)

// ServiceSpec is the state of one supervised process. Written by the supervisor.
type ServiceSpec struct {
	Running  bool   `yaml:"running"`
	Healthy  bool   `yaml:"healthy"`
	Unknown  bool   `yaml:"unknown"`
	State    string `yaml:"state"`
	PID      int    `yaml:"pid"`
	Restarts int    `yaml:"restarts"`
	LastExit string `yaml:"lastExit,omitempty"`
}

// MachineStatusSpec says how far the machine is. Written by machined's boot.
type MachineStatusSpec struct {
	Stage  string `yaml:"stage"`
	Status struct {
		Ready           bool     `yaml:"ready"`
		UnmetConditions []string `yaml:"unmetConditions,omitempty"`
	} `yaml:"status"`
}

// Stages of a machine; the names are those of the public API's MachineStatusEvent.
const (
	StageBooting      = "booting"
	StageMaintenance  = "maintenance"
	StageInstalling   = "installing"
	StageRunning      = "running"
	StageRebooting    = "rebooting"
	StageShuttingDown = "shuttingDown"
)

// IdentitySpec is the node's identity, made once and kept on STATE. Written by machined's boot.
type IdentitySpec struct {
	NodeID string `yaml:"nodeId"`
}

// VersionSpec says what runs. Written by machined's boot.
type VersionSpec struct {
	Version   string `yaml:"version"`
	BuildID   string `yaml:"buildId"`
	GoVersion string `yaml:"goVersion"`
	Arch      string `yaml:"arch"`
	BootID    string `yaml:"bootId"`
}

// MountStatusSpec is one mounted partition or overlay. Written by machined's disk tasks.
type MountStatusSpec struct {
	Source         string   `yaml:"source"`
	Target         string   `yaml:"target"`
	FilesystemType string   `yaml:"filesystemType"`
	Options        []string `yaml:"options,omitempty"`
}

// MetaKeySpec is one value of the META partition. Written by machined's disk tasks.
type MetaKeySpec struct {
	Value string `yaml:"value"`
}

// MachineConfigSpec is the machine configuration as YAML text. It holds secrets. Written by machined's configuration task.
type MachineConfigSpec struct{ Text string }

// MarshalYAML shows the configuration itself, not a string with it.
func (s *MachineConfigSpec) MarshalYAML() (any, error) { return yamlNode(s.Text) }

// DeepCopy implements typed.DeepCopyable, as the methods below.
func (s ServiceSpec) DeepCopy() ServiceSpec             { return s }
func (s IdentitySpec) DeepCopy() IdentitySpec           { return s }
func (s VersionSpec) DeepCopy() VersionSpec             { return s }
func (s MetaKeySpec) DeepCopy() MetaKeySpec             { return s }
func (s MachineConfigSpec) DeepCopy() MachineConfigSpec { return s }

func (s MachineStatusSpec) DeepCopy() MachineStatusSpec {
	s.Status.UnmetConditions = slices.Clone(s.Status.UnmetConditions)

	return s
}

func (s MountStatusSpec) DeepCopy() MountStatusSpec {
	s.Options = slices.Clone(s.Options)

	return s
}

// MarshalProto implements protobuf.ProtoMarshaler, as the methods below: there is no protobuf form.
func (ServiceSpec) MarshalProto() ([]byte, error)       { return nil, nil }
func (MachineStatusSpec) MarshalProto() ([]byte, error) { return nil, nil }
func (IdentitySpec) MarshalProto() ([]byte, error)      { return nil, nil }
func (VersionSpec) MarshalProto() ([]byte, error)       { return nil, nil }
func (MountStatusSpec) MarshalProto() ([]byte, error)   { return nil, nil }
func (MetaKeySpec) MarshalProto() ([]byte, error)       { return nil, nil }
func (MachineConfigSpec) MarshalProto() ([]byte, error) { return nil, nil }

type (
	// Service is ServiceSpec as a resource; its ID is the service's name.
	Service = typed.Resource[ServiceSpec, serviceRD]
	// MachineStatus is MachineStatusSpec as a resource with the ID MachineStatusID.
	MachineStatus = typed.Resource[MachineStatusSpec, machineStatusRD]
	// Identity is IdentitySpec as a resource with the ID IdentityID.
	Identity = typed.Resource[IdentitySpec, identityRD]
	// Version is VersionSpec as a resource with the ID VersionID.
	Version = typed.Resource[VersionSpec, versionRD]
	// MountStatus is MountStatusSpec as a resource; its ID is the partition's label or the overlay's target.
	MountStatus = typed.Resource[MountStatusSpec, mountStatusRD]
	// MetaKey is MetaKeySpec as a resource; its ID is the tag as "0x0a".
	MetaKey = typed.Resource[MetaKeySpec, metaKeyRD]
	// MachineConfig is MachineConfigSpec as a resource with the ID MachineConfigID.
	MachineConfig = typed.Resource[MachineConfigSpec, machineConfigRD]
)

// Types and single IDs.
const (
	ServiceType       = resource.Type("Services.v1alpha1.talos.dev")
	MachineStatusType = resource.Type("MachineStatuses.runtime.talos.dev")
	MachineStatusID   = resource.ID("machine")
	IdentityType      = resource.Type("Identities.cluster.talos.dev")
	IdentityID        = resource.ID("local")
	VersionType       = resource.Type("Versions.runtime.talos.dev")
	VersionID         = resource.ID("version")
	MountStatusType   = resource.Type("MountStatuses.runtime.talos.dev")
	MetaKeyType       = resource.Type("MetaKeys.runtime.talos.dev")
	MachineConfigType = resource.Type("MachineConfigs.config.talos.dev")
	MachineConfigID   = resource.ID("v1alpha1")
)

// NewService and the functions below return a resource with its specification.
func NewService(id string, spec ServiceSpec) *Service {
	return newResource[serviceRD](Runtime, ServiceType, id, spec)
}

// NewMachineStatus returns the one machine status.
func NewMachineStatus(spec MachineStatusSpec) *MachineStatus {
	return newResource[machineStatusRD](Runtime, MachineStatusType, MachineStatusID, spec)
}

// NewIdentity returns the one node identity.
func NewIdentity(spec IdentitySpec) *Identity {
	return newResource[identityRD](Cluster, IdentityType, IdentityID, spec)
}

// NewVersion returns the one version.
func NewVersion(spec VersionSpec) *Version {
	return newResource[versionRD](Runtime, VersionType, VersionID, spec)
}

// NewMountStatus returns one mount.
func NewMountStatus(id string, spec MountStatusSpec) *MountStatus {
	return newResource[mountStatusRD](Runtime, MountStatusType, id, spec)
}

// NewMetaKey returns one value of META.
func NewMetaKey(id string, spec MetaKeySpec) *MetaKey {
	return newResource[metaKeyRD](Runtime, MetaKeyType, id, spec)
}

// NewMachineConfig returns the one machine configuration.
func NewMachineConfig(text string) *MachineConfig {
	return newResource[machineConfigRD](Config, MachineConfigType, MachineConfigID, MachineConfigSpec{Text: text})
}

type (
	serviceRD       struct{}
	machineStatusRD struct{}
	identityRD      struct{}
	versionRD       struct{}
	mountStatusRD   struct{}
	metaKeyRD       struct{}
	machineConfigRD struct{}
)

func definition(t resource.Type, ns resource.Namespace, aliases []resource.Type, columns ...string) meta.ResourceDefinitionSpec {
	spec := meta.ResourceDefinitionSpec{Type: t, DefaultNamespace: ns, Aliases: aliases}
	for i := 0; i+1 < len(columns); i += 2 {
		spec.PrintColumns = append(spec.PrintColumns, meta.PrintColumn{Name: columns[i], JSONPath: columns[i+1]})
	}

	return spec
}

func (serviceRD) ResourceDefinition() meta.ResourceDefinitionSpec {
	return definition(ServiceType, Runtime, []resource.Type{"svc"}, "Running", "{.running}", "Healthy", "{.healthy}", "Health Unknown", "{.unknown}",
		"PID", "{.pid}", "Restarts", "{.restarts}", "Last Exit", "{.lastExit}")
}

func (machineStatusRD) ResourceDefinition() meta.ResourceDefinitionSpec {
	return definition(MachineStatusType, Runtime, nil, "Stage", "{.stage}", "Ready", "{.status.ready}")
}

func (identityRD) ResourceDefinition() meta.ResourceDefinitionSpec {
	return definition(IdentityType, Cluster, nil, "ID", "{.nodeId}")
}

func (versionRD) ResourceDefinition() meta.ResourceDefinitionSpec {
	return definition(VersionType, Runtime, nil, "Version", "{.version}", "Build ID", "{.buildId}")
}

func (mountStatusRD) ResourceDefinition() meta.ResourceDefinitionSpec {
	return definition(MountStatusType, Runtime, []resource.Type{"mounts"}, "Source", "{.source}", "Target", "{.target}", "Filesystem Type", "{.filesystemType}")
}

func (metaKeyRD) ResourceDefinition() meta.ResourceDefinitionSpec {
	return definition(MetaKeyType, Runtime, []resource.Type{"meta"}, "Value", "{.value}")
}

func (machineConfigRD) ResourceDefinition() meta.ResourceDefinitionSpec {
	spec := definition(MachineConfigType, Config, []resource.Type{"mc"})
	spec.Sensitivity = metaspec.Sensitive

	return spec
}
