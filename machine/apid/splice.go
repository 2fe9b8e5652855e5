package apid

import (
	"fmt"

	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/encoding/protowire"
	"google.golang.org/protobuf/proto"

	"github.com/talos-factory/talos-factory/api/common"
)

// Replies are marked and merged as bytes, without their schema. What makes it possible:
// every unary reply is `repeated X messages = 1`, every X and every streamed message has
// `common.Metadata metadata = 1`, and a protobuf field that comes twice is merged
// (https://protobuf.dev/programming-guides/encoding/#last-one-wins). So metadata can be
// appended, and unary replies of several nodes can be concatenated.
const (
	messagesField = 1
	metadataField = 1
)

// mark adds metadata{hostname} to a reply.
func mark(streaming bool, reply []byte, hostname string) ([]byte, error) {
	metadata, err := metadataOf(&common.Metadata{Hostname: hostname})
	if err != nil {
		return nil, err
	}
	if streaming {
		return append(reply, metadata...), nil
	}
	if len(reply) == 0 { // no element to carry the mark
		return element(metadata), nil
	}
	marked := make([]byte, 0, len(reply)+len(metadata)+protowire.SizeVarint(uint64(len(reply)))+1)
	for len(reply) > 0 {
		number, kind, n := protowire.ConsumeField(reply)
		_, _, tag := protowire.ConsumeTag(reply)
		if n < 0 || tag < 0 {
			return nil, fmt.Errorf("cannot mark a reply of %s: not a protobuf message", hostname)
		}
		if number == messagesField && kind == protowire.BytesType {
			content, _ := protowire.ConsumeBytes(reply[tag:n])
			marked = protowire.AppendTag(marked, messagesField, protowire.BytesType)
			marked = protowire.AppendVarint(marked, uint64(len(content)+len(metadata)))
			marked = append(append(marked, content...), metadata...)
		} else {
			marked = append(marked, reply[:n]...)
		}
		reply = reply[n:]
	}
	return marked, nil
}

// errorReply is a reply with nothing but metadata{hostname, error, status}.
func errorReply(streaming bool, hostname string, err error) ([]byte, error) {
	metadata, marshalErr := metadataOf(&common.Metadata{
		Hostname: hostname,
		Error:    err.Error(),
		Status:   status.Convert(err).Proto(),
	})
	if marshalErr != nil || streaming {
		return metadata, marshalErr
	}
	return element(metadata), nil
}

func metadataOf(metadata *common.Metadata) ([]byte, error) {
	data, err := proto.Marshal(metadata)
	if err != nil {
		return nil, err
	}
	return protowire.AppendBytes(protowire.AppendTag(nil, metadataField, protowire.BytesType), data), nil
}

func element(content []byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, messagesField, protowire.BytesType), content)
}
