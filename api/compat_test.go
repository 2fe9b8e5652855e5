package api_test

import (
	"fmt"
	"slices"
	"testing"

	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protodesc"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
)

// A finder gives the descriptor of that name in the newer API, or nil.
type finder func(protoreflect.FullName) protoreflect.Descriptor

// incompatible lists what the newer API took away from the older one.
func incompatible(older []protoreflect.FileDescriptor, newer finder) []string {
	c := &checker{newer: newer}
	for _, file := range older {
		c.messages(file.Messages())
		c.enums(file.Enums())
		for i := range file.Services().Len() {
			c.service(file.Services().Get(i))
		}
	}
	slices.Sort(c.problems)
	return c.problems
}

type checker struct {
	newer    finder
	problems []string
}

func (c *checker) problem(format string, args ...any) {
	c.problems = append(c.problems, fmt.Sprintf(format, args...))
}

func (c *checker) messages(list protoreflect.MessageDescriptors) {
	for i := range list.Len() {
		older := list.Get(i)
		newer, ok := c.newer(older.FullName()).(protoreflect.MessageDescriptor)
		if !ok {
			c.problem("message %s is gone", older.FullName())
			continue
		}
		for j := range older.Fields().Len() {
			c.field(older.Fields().Get(j), newer)
		}
		c.messages(older.Messages())
		c.enums(older.Enums())
	}
}

func (c *checker) field(older protoreflect.FieldDescriptor, message protoreflect.MessageDescriptor) {
	label := fmt.Sprintf("field %s (%d)", older.FullName(), older.Number())
	newer := message.Fields().ByNumber(older.Number())
	if newer == nil {
		c.problem("%s is gone", label)
		return
	}
	if newer.Name() != older.Name() { // the JSON and text forms use it
		c.problem("%s is now called %s", label, newer.Name())
	}
	if got, want := typeName(newer), typeName(older); got != want {
		c.problem("%s was %s, is %s", label, want, got)
	}
	if newer.Cardinality() != older.Cardinality() {
		c.problem("%s was %s, is %s", label, older.Cardinality(), newer.Cardinality())
	}
	if oneof(newer) != oneof(older) {
		c.problem("%s was in oneof %q, is in %q", label, oneof(older), oneof(newer))
	}
}

func typeName(f protoreflect.FieldDescriptor) string {
	switch {
	case f.Message() != nil:
		return string(f.Message().FullName())
	case f.Enum() != nil:
		return string(f.Enum().FullName())
	}
	return f.Kind().String()
}

func oneof(f protoreflect.FieldDescriptor) protoreflect.Name {
	if f.ContainingOneof() == nil {
		return ""
	}
	return f.ContainingOneof().Name()
}

func (c *checker) enums(list protoreflect.EnumDescriptors) {
	for i := range list.Len() {
		older := list.Get(i)
		newer, ok := c.newer(older.FullName()).(protoreflect.EnumDescriptor)
		if !ok {
			c.problem("enum %s is gone", older.FullName())
			continue
		}
		for j := range older.Values().Len() {
			value := older.Values().Get(j)
			same := newer.Values().ByName(value.Name())
			if same == nil || same.Number() != value.Number() {
				c.problem("value %s (%d) of enum %s is gone", value.Name(), value.Number(), older.FullName())
			}
		}
	}
}

func (c *checker) service(older protoreflect.ServiceDescriptor) {
	newer, ok := c.newer(older.FullName()).(protoreflect.ServiceDescriptor)
	if !ok {
		c.problem("service %s is gone", older.FullName())
		return
	}
	for i := range older.Methods().Len() {
		was := older.Methods().Get(i)
		is := newer.Methods().ByName(was.Name())
		if is == nil {
			c.problem("method %s is gone", was.FullName())
			continue
		}
		if is.IsStreamingClient() != was.IsStreamingClient() || is.IsStreamingServer() != was.IsStreamingServer() {
			c.problem("method %s changed its streaming", was.FullName())
		}
		if got, want := is.Input().FullName(), was.Input().FullName(); got != want {
			c.problem("method %s takes %s, was %s", was.FullName(), got, want)
		}
		if got, want := is.Output().FullName(), was.Output().FullName(); got != want {
			c.problem("method %s returns %s, was %s", was.FullName(), got, want)
		}
	}
}

// edit is a copy of the baseline that a test breaks on purpose.
type edit struct {
	t   *testing.T
	set *descriptorpb.FileDescriptorSet
}

// finder looks into the edited files. References to what was removed stay dangling: the
// checker must name the change, not a compiler.
func (e *edit) finder() finder {
	registry, err := protodesc.FileOptions{AllowUnresolvable: true}.NewFiles(e.set)
	if err != nil {
		e.t.Fatal(err)
	}
	return find(registry)
}

func (e *edit) message(name string) *descriptorpb.DescriptorProto {
	for _, file := range e.set.File {
		for _, m := range file.MessageType {
			if file.GetPackage() == "machine" && m.GetName() == name {
				return m
			}
		}
	}
	e.t.Fatalf("no message machine.%s in the baseline", name)
	return nil
}

func (e *edit) service(name string) *descriptorpb.ServiceDescriptorProto {
	for _, file := range e.set.File {
		for _, s := range file.Service {
			if s.GetName() == name {
				return s
			}
		}
	}
	e.t.Fatalf("no service %s in the baseline", name)
	return nil
}

func (e *edit) removeMessage(name string) {
	e.message(name) // it must be there
	for _, file := range e.set.File {
		file.MessageType = slices.DeleteFunc(file.MessageType, func(m *descriptorpb.DescriptorProto) bool {
			return file.GetPackage() == "machine" && m.GetName() == name
		})
	}
}

func (e *edit) removeService(name string) {
	e.service(name) // it must be there
	for _, file := range e.set.File {
		file.Service = slices.DeleteFunc(file.Service, func(s *descriptorpb.ServiceDescriptorProto) bool {
			return s.GetName() == name
		})
	}
}

func stringField(name string, number int32) *descriptorpb.FieldDescriptorProto {
	return &descriptorpb.FieldDescriptorProto{
		Name: proto.String(name), Number: proto.Int32(number), JsonName: proto.String(name),
		Type:  descriptorpb.FieldDescriptorProto_TYPE_STRING.Enum(),
		Label: descriptorpb.FieldDescriptorProto_LABEL_OPTIONAL.Enum(),
	}
}
