package state

import (
	"slices"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	"github.com/cosi-project/runtime/pkg/resource/typed"
)

// AddressStatusSpec is an address of an interface. Written by machined's network task.
type AddressStatusSpec struct {
	Address  string `yaml:"address"` // with its prefix length
	LinkName string `yaml:"linkName"`
	Family   string `yaml:"family"`
	Scope    string `yaml:"scope"`
}

// LinkStatusSpec is a network interface. Written by machined's network task.
type LinkStatusSpec struct {
	Index            int    `yaml:"index"`
	Type             string `yaml:"type"`
	Kind             string `yaml:"kind,omitempty"`
	HardwareAddr     string `yaml:"hardwareAddr,omitempty"`
	MTU              int    `yaml:"mtu"`
	OperationalState string `yaml:"operationalState"`
	LinkState        bool   `yaml:"linkState"` // has a carrier
}

// HostnameStatusSpec is the node's name. Written by machined's network task.
type HostnameStatusSpec struct {
	Hostname   string `yaml:"hostname"`
	Domainname string `yaml:"domainname"`
}

// ResolverStatusSpec lists the DNS servers in use. Written by machined's network task.
type ResolverStatusSpec struct {
	DNSServers    []string `yaml:"dnsServers"`
	SearchDomains []string `yaml:"searchDomains,omitempty"`
}

// DeepCopy implements typed.DeepCopyable, as the methods below.
func (s AddressStatusSpec) DeepCopy() AddressStatusSpec   { return s }
func (s LinkStatusSpec) DeepCopy() LinkStatusSpec         { return s }
func (s HostnameStatusSpec) DeepCopy() HostnameStatusSpec { return s }

func (s ResolverStatusSpec) DeepCopy() ResolverStatusSpec {
	return ResolverStatusSpec{slices.Clone(s.DNSServers), slices.Clone(s.SearchDomains)}
}

// MarshalProto implements protobuf.ProtoMarshaler, as the methods below: there is no protobuf form.
func (AddressStatusSpec) MarshalProto() ([]byte, error)  { return nil, nil }
func (LinkStatusSpec) MarshalProto() ([]byte, error)     { return nil, nil }
func (HostnameStatusSpec) MarshalProto() ([]byte, error) { return nil, nil }
func (ResolverStatusSpec) MarshalProto() ([]byte, error) { return nil, nil }

type (
	// AddressStatus is AddressStatusSpec as a resource; its ID is "link/address".
	AddressStatus = typed.Resource[AddressStatusSpec, addressStatusRD]
	// LinkStatus is LinkStatusSpec as a resource; its ID is the interface's name.
	LinkStatus = typed.Resource[LinkStatusSpec, linkStatusRD]
	// HostnameStatus is HostnameStatusSpec as a resource with the ID HostnameID.
	HostnameStatus = typed.Resource[HostnameStatusSpec, hostnameStatusRD]
	// ResolverStatus is ResolverStatusSpec as a resource with the ID ResolverID.
	ResolverStatus = typed.Resource[ResolverStatusSpec, resolverStatusRD]
)

// Types and single IDs.
const (
	AddressStatusType  = resource.Type("AddressStatuses.net.talos.dev")
	LinkStatusType     = resource.Type("LinkStatuses.net.talos.dev")
	HostnameStatusType = resource.Type("HostnameStatuses.net.talos.dev")
	HostnameID         = resource.ID("hostname")
	ResolverStatusType = resource.Type("ResolverStatuses.net.talos.dev")
	ResolverID         = resource.ID("resolvers")
)

// NewAddressStatus returns one address.
func NewAddressStatus(spec AddressStatusSpec) *AddressStatus {
	return newResource[addressStatusRD](Network, AddressStatusType, spec.LinkName+"/"+spec.Address, spec)
}

// NewLinkStatus returns one interface.
func NewLinkStatus(name string, spec LinkStatusSpec) *LinkStatus {
	return newResource[linkStatusRD](Network, LinkStatusType, name, spec)
}

// NewHostnameStatus returns the one host name.
func NewHostnameStatus(spec HostnameStatusSpec) *HostnameStatus {
	return newResource[hostnameStatusRD](Network, HostnameStatusType, HostnameID, spec)
}

// NewResolverStatus returns the one list of DNS servers.
func NewResolverStatus(spec ResolverStatusSpec) *ResolverStatus {
	return newResource[resolverStatusRD](Network, ResolverStatusType, ResolverID, spec)
}

type (
	addressStatusRD  struct{}
	linkStatusRD     struct{}
	hostnameStatusRD struct{}
	resolverStatusRD struct{}
)

func (addressStatusRD) ResourceDefinition() meta.ResourceDefinitionSpec {
	return definition(AddressStatusType, Network, []resource.Type{"address", "addresses"}, "Address", "{.address}", "Link", "{.linkName}")
}

func (linkStatusRD) ResourceDefinition() meta.ResourceDefinitionSpec {
	return definition(LinkStatusType, Network, []resource.Type{"link", "links"}, "Type", "{.type}", "Kind", "{.kind}", "Hw Addr", "{.hardwareAddr}",
		"Oper State", "{.operationalState}", "Link State", "{.linkState}")
}

func (hostnameStatusRD) ResourceDefinition() meta.ResourceDefinitionSpec {
	return definition(HostnameStatusType, Network, []resource.Type{"hostname"}, "Hostname", "{.hostname}", "Domainname", "{.domainname}")
}

func (resolverStatusRD) ResourceDefinition() meta.ResourceDefinitionSpec {
	return definition(ResolverStatusType, Network, []resource.Type{"resolvers"}, "Resolvers", "{.dnsServers}", "Search Domains", "{.searchDomains}")
}
