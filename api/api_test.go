package api_test

import (
	"os"
	"slices"
	"strings"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/reflect/protoregistry"
	"google.golang.org/protobuf/types/descriptorpb"

	"github.com/talos-factory/talos-factory/api/common"
	"github.com/talos-factory/talos-factory/api/machine"
	"github.com/talos-factory/talos-factory/api/security"
	"github.com/talos-factory/talos-factory/api/signer"
	timeapi "github.com/talos-factory/talos-factory/api/time"
)

const baselineFile = "testdata/baseline.binpb"

// A change of the API that an older client or node would not survive is refused. What was
// only added may be taken into the baseline:
//
//	cd api && go tool -modfile=../tools/go.mod buf build --as-file-descriptor-set -o testdata/baseline.binpb
func TestCompatible(t *testing.T) {
	for _, problem := range incompatible(baseline(t), find(current(t))) {
		t.Error(problem)
	}
}

// current is what the generated code says, so that it also finds code that was not
// generated anew.
func current(t *testing.T) *protoregistry.Files {
	t.Helper()
	files := new(protoregistry.Files)
	for _, file := range []protoreflect.FileDescriptor{
		common.File_common_common_proto,
		machine.File_machine_machine_proto, machine.File_machine_image_proto, machine.File_machine_debug_proto,
		machine.File_machine_events_proto, machine.File_machine_files_proto,
		machine.File_machine_services_proto, machine.File_machine_stats_proto,
		security.File_security_security_proto, signer.File_signer_signer_proto,
		timeapi.File_time_time_proto,
	} {
		if err := files.RegisterFile(file); err != nil {
			t.Fatal(err)
		}
	}
	return files
}

func find(files *protoregistry.Files) finder {
	return func(name protoreflect.FullName) protoreflect.Descriptor {
		d, err := files.FindDescriptorByName(name)
		if err != nil {
			return nil
		}
		return d
	}
}

func baseline(t *testing.T) []protoreflect.FileDescriptor {
	t.Helper()
	var ours []protoreflect.FileDescriptor
	for _, file := range files(t, baselineSet(t)) {
		if !strings.HasPrefix(string(file.Package()), "google.") {
			ours = append(ours, file)
		}
	}
	if len(ours) == 0 {
		t.Fatalf("%s holds no files", baselineFile)
	}
	return ours
}

func baselineSet(t *testing.T) *descriptorpb.FileDescriptorSet {
	t.Helper()
	data, err := os.ReadFile(baselineFile)
	if err != nil {
		t.Fatal(err)
	}
	set := new(descriptorpb.FileDescriptorSet)
	if err := proto.Unmarshal(data, set); err != nil {
		t.Fatal(err)
	}
	return set
}

func files(t *testing.T, set *descriptorpb.FileDescriptorSet) []protoreflect.FileDescriptor {
	t.Helper()
	registry, err := protodesc.NewFiles(set)
	if err != nil {
		t.Fatal(err)
	}
	var all []protoreflect.FileDescriptor
	registry.RangeFiles(func(file protoreflect.FileDescriptor) bool {
		all = append(all, file)
		return true
	})
	return all
}

// The checker must refuse what it is there to refuse.
func TestRefusesIncompatible(t *testing.T) {
	tests := map[string]struct {
		change func(*edit)
		want   string // "" if the change is harmless
	}{
		"nothing": {func(*edit) {}, ""},
		"field added": {func(e *edit) {
			e.message("ReadRequest").Field = append(e.message("ReadRequest").Field, stringField("more", 7))
		}, ""},
		"field removed":    {func(e *edit) { e.message("ReadRequest").Field = nil }, "field machine.ReadRequest.path (1) is gone"},
		"field renumbered": {func(e *edit) { e.message("ReadRequest").Field[0].Number = proto.Int32(9) }, "field machine.ReadRequest.path (1) is gone"},
		"field renamed":    {func(e *edit) { e.message("ReadRequest").Field[0].Name = proto.String("file") }, "field machine.ReadRequest.path (1) is now called file"},
		"field retyped": {func(e *edit) {
			e.message("ReadRequest").Field[0].Type = descriptorpb.FieldDescriptorProto_TYPE_BYTES.Enum()
		}, "field machine.ReadRequest.path (1) was string, is bytes"},
		"field repeated": {func(e *edit) {
			e.message("ReadRequest").Field[0].Label = descriptorpb.FieldDescriptorProto_LABEL_REPEATED.Enum()
		}, "field machine.ReadRequest.path (1) was optional, is repeated"},
		"message of another type": {func(e *edit) {
			e.message("Reboot").Field[0].TypeName = proto.String(".common.Data")
		}, "field machine.Reboot.metadata (1) was common.Metadata, is common.Data"},
		"message removed": {func(e *edit) { e.removeMessage("ContainerInfo") }, "message machine.ContainerInfo is gone"},
		"enum value removed": {func(e *edit) {
			enum := e.message("RebootRequest").EnumType[0]
			enum.Value = enum.Value[:1]
		}, "value POWERCYCLE (1) of enum machine.RebootRequest.Mode is gone"},
		"method removed": {func(e *edit) { e.service("ImageService").Method = e.service("ImageService").Method[:3] },
			"method machine.ImageService.Remove is gone"},
		"method streams": {func(e *edit) { e.service("DebugService").Method[0].ServerStreaming = proto.Bool(false) },
			"method machine.DebugService.ContainerRun changed its streaming"},
		"method takes another message": {func(e *edit) {
			e.service("ImageService").Method[0].InputType = proto.String(".machine.ImageServicePullRequest")
		}, "method machine.ImageService.List takes machine.ImageServicePullRequest, was machine.ImageServiceListRequest"},
		"method added": {func(e *edit) {
			m := proto.CloneOf(e.service("ImageService").Method[0])
			m.Name = proto.String("Verify")
			e.service("ImageService").Method = append(e.service("ImageService").Method, m)
		}, ""},
		"service removed": {func(e *edit) { e.removeService("DebugService") }, "service machine.DebugService is gone"},
	}
	for name, tt := range tests {
		t.Run(name, func(t *testing.T) {
			e := &edit{t: t, set: baselineSet(t)}
			tt.change(e)
			got := incompatible(baseline(t), e.finder())
			switch {
			case tt.want == "" && len(got) > 0:
				t.Errorf("harmless change refused: %q", got)
			case tt.want != "" && !slices.Contains(got, tt.want):
				t.Errorf("problems %q, want %q", got, tt.want)
			}
		})
	}
}
