package ova

import (
	"encoding/xml"
	"fmt"
)

// The descriptor's elements in the order of the schemas DSP8023 (envelope) and of RASD, which is alphabetical.
// Prefixes are written out, as readers that do not know name spaces expect them.

type envelope struct {
	XMLName    xml.Name `xml:"Envelope"`
	Namespace  string   `xml:"xmlns,attr"`
	OVF        string   `xml:"xmlns:ovf,attr"`
	RASD       string   `xml:"xmlns:rasd,attr"`
	VSSD       string   `xml:"xmlns:vssd,attr"`
	VMW        string   `xml:"xmlns:vmw,attr"`
	References struct {
		File reference
	}
	DiskSection struct {
		Info string
		Disk virtualDisk
	}
	NetworkSection struct {
		Info    string
		Network network
	}
	VirtualSystem virtualSystem
}

type reference struct {
	ID   string `xml:"ovf:id,attr"`
	Href string `xml:"ovf:href,attr"`
	Size int64  `xml:"ovf:size,attr"`
}

type virtualDisk struct {
	DiskID   string `xml:"ovf:diskId,attr"`
	FileRef  string `xml:"ovf:fileRef,attr"`
	Capacity int64  `xml:"ovf:capacity,attr"`
	Units    string `xml:"ovf:capacityAllocationUnits,attr"`
	Format   string `xml:"ovf:format,attr"`
}

type network struct {
	Name        string `xml:"ovf:name,attr"`
	Description string
}

type virtualSystem struct {
	ID              string `xml:"ovf:id,attr"`
	Info            string
	Name            string
	ProductSection  productSection
	OperatingSystem struct {
		ID     int    `xml:"ovf:id,attr"`
		OSType string `xml:"vmw:osType,attr"`
		Info   string
	} `xml:"OperatingSystemSection"`
	VirtualHardware hardware `xml:"VirtualHardwareSection"`
}

type productSection struct {
	Required   bool `xml:"ovf:required,attr"`
	Info       string
	Product    string     `xml:",omitempty"`
	Vendor     string     `xml:",omitempty"`
	Version    string     `xml:",omitempty"`
	Properties []property `xml:"Property"`
}

type property struct {
	Key              string `xml:"ovf:key,attr"`
	Type             string `xml:"ovf:type,attr"`
	Value            string `xml:"ovf:value,attr"`
	UserConfigurable bool   `xml:"ovf:userConfigurable,attr"`
	Label            string
	Description      string `xml:",omitempty"`
}

type hardware struct {
	Transport string `xml:"ovf:transport,attr"`
	Info      string
	System    struct {
		ElementName             string `xml:"vssd:ElementName"`
		InstanceID              int    `xml:"vssd:InstanceID"`
		VirtualSystemIdentifier string `xml:"vssd:VirtualSystemIdentifier"`
		VirtualSystemType       string `xml:"vssd:VirtualSystemType"`
	}
	Items  []item   `xml:"Item"`
	Config []config `xml:"vmw:Config"`
}

type item struct {
	Address             string `xml:"rasd:Address,omitempty"`
	AddressOnParent     string `xml:"rasd:AddressOnParent,omitempty"`
	AllocationUnits     string `xml:"rasd:AllocationUnits,omitempty"`
	AutomaticAllocation bool   `xml:"rasd:AutomaticAllocation,omitempty"`
	Connection          string `xml:"rasd:Connection,omitempty"`
	Description         string `xml:"rasd:Description,omitempty"`
	ElementName         string `xml:"rasd:ElementName"`
	HostResource        string `xml:"rasd:HostResource,omitempty"`
	InstanceID          int    `xml:"rasd:InstanceID"`
	Parent              int    `xml:"rasd:Parent,omitempty"`
	ResourceSubType     string `xml:"rasd:ResourceSubType,omitempty"`
	ResourceType        int    `xml:"rasd:ResourceType"`
	VirtualQuantity     int    `xml:"rasd:VirtualQuantity,omitempty"`
}

type config struct {
	Required bool   `xml:"ovf:required,attr"`
	Key      string `xml:"vmw:key,attr"`
	Value    string `xml:"vmw:value,attr"`
}

// Values of CIM_ResourceAllocationSettingData.ResourceType.
const (
	typeCPU        = 3
	typeMemory     = 4
	typeSCSI       = 6
	typeEthernet   = 10
	typeDisk       = 17
	osLinux64      = 101      // CIM_OperatingSystem.OSType: LINUX 64-Bit
	hardwareFamily = "vmx-15" // ESXi 6.7 U2 and later
	networkName    = "VM Network"
)

// descriptor is the text of the .ovf.
func descriptor(m Machine, disk Disk) ([]byte, error) {
	e := envelope{
		Namespace: "http://schemas.dmtf.org/ovf/envelope/1",
		OVF:       "http://schemas.dmtf.org/ovf/envelope/1",
		RASD:      "http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_ResourceAllocationSettingData",
		VSSD:      "http://schemas.dmtf.org/wbem/wscim/1/cim-schema/2/CIM_VirtualSystemSettingData",
		VMW:       "http://www.vmware.com/schema/ovf",
	}
	e.References.File = reference{ID: "file1", Href: m.DiskName(), Size: disk.Image.Size()}
	e.DiskSection.Info = "The virtual disk"
	e.DiskSection.Disk = virtualDisk{
		DiskID: "vmdisk1", FileRef: "file1", Capacity: disk.Capacity, Units: "byte",
		Format: "http://www.vmware.com/interfaces/specifications/vmdk.html#streamOptimized",
	}
	e.NetworkSection.Info = "The network the machine is connected to"
	e.NetworkSection.Network = network{networkName, "A network with access to the machine's API"}
	s := &e.VirtualSystem
	s.ID, s.Info, s.Name = m.Name, "The virtual machine", m.Name
	s.ProductSection = productSection{Info: "What is installed", Product: m.Product, Vendor: m.Vendor, Version: m.Version}
	for _, p := range m.Properties {
		s.ProductSection.Properties = append(s.ProductSection.Properties,
			property{Key: p.Key, Type: "string", UserConfigurable: true, Label: p.Label, Description: p.Description})
	}
	s.OperatingSystem.ID, s.OperatingSystem.OSType = osLinux64, "other4xLinux64Guest"
	s.OperatingSystem.Info = "The operating system"
	s.VirtualHardware = m.hardware()
	text, err := xml.MarshalIndent(e, "", "  ")
	return append([]byte(xml.Header), append(text, '\n')...), err
}

// hardware is what the kernel has drivers for and every supported release of ESXi emulates: a paravirtual SCSI
// controller and a VMXNET3 adapter. UEFI starts any image, and is the only one to start one with Secure Boot.
func (m Machine) hardware() hardware {
	h := hardware{Transport: "com.vmware.guestInfo", Info: "The virtual hardware"}
	h.System.ElementName, h.System.VirtualSystemIdentifier, h.System.VirtualSystemType = "Virtual Hardware Family", m.Name, hardwareFamily
	h.Items = []item{
		{InstanceID: 1, ResourceType: typeCPU, ElementName: fmt.Sprintf("%d virtual CPUs", m.CPUs), AllocationUnits: "hertz * 10^6", VirtualQuantity: m.CPUs},
		{InstanceID: 2, ResourceType: typeMemory, ElementName: fmt.Sprintf("%d MiB of memory", m.MemoryMiB), AllocationUnits: "byte * 2^20", VirtualQuantity: m.MemoryMiB},
		{InstanceID: 3, ResourceType: typeSCSI, ElementName: "SCSI controller 0", ResourceSubType: "VirtualSCSI", Address: "0"},
		{InstanceID: 4, ResourceType: typeDisk, ElementName: "Hard disk 1", HostResource: "ovf:/disk/vmdisk1", Parent: 3, AddressOnParent: "0"},
		{InstanceID: 5, ResourceType: typeEthernet, ElementName: "Ethernet 1", ResourceSubType: "VmxNet3", Connection: networkName, AutomaticAllocation: true, AddressOnParent: "7"},
	}
	h.Config = []config{{Key: "firmware", Value: "efi"}}
	if m.SecureBoot {
		h.Config = append(h.Config, config{Key: "bootOptions.efiSecureBootEnabled", Value: "true"})
	}
	return h
}
