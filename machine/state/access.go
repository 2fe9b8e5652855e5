package state

import (
	"context"

	"github.com/cosi-project/runtime/pkg/resource"
	"github.com/cosi-project/runtime/pkg/resource/meta"
	metaspec "github.com/cosi-project/runtime/pkg/resource/meta/spec"
	cosi "github.com/cosi-project/runtime/pkg/state"
	"go.yaml.in/yaml/v4"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
)

// ReadOnly is the store as it is shown to API callers: nothing can be written, unknown types are refused, and sensitive types
// are shown only if admin says so of the call.
func ReadOnly(store cosi.State, admin func(context.Context) bool) cosi.CoreState {
	return cosi.Filter(store, func(ctx context.Context, access cosi.Access) error {
		if !access.Verb.Readonly() {
			return status.Error(codes.PermissionDenied, "resources cannot be written through the API")
		}

		sensitivity, known, err := sensitivityOf(ctx, store, access.ResourceType)

		switch {
		case err != nil:
			return err
		case !known:
			return status.Errorf(codes.PermissionDenied, "resource type %q is not supported", access.ResourceType)
		case sensitivity == metaspec.Sensitive && !admin(ctx):
			return status.Errorf(codes.PermissionDenied, "cannot show %s: it needs the role os:admin", access.ResourceType)
		}

		return nil
	})
}

// Only is the store with nothing but reads of the given types, for one daemon.
func Only(store cosi.State, types ...resource.Type) cosi.CoreState {
	return cosi.Filter(store, func(_ context.Context, access cosi.Access) error {
		if access.Verb.Readonly() {
			for _, t := range types {
				if access.ResourceType == t {
					return nil
				}
			}
		}

		return status.Errorf(codes.PermissionDenied, "cannot access %s here", access.ResourceType)
	})
}

func sensitivityOf(ctx context.Context, store cosi.State, t resource.Type) (metaspec.Sensitivity, bool, error) {
	list, err := store.List(ctx, resource.NewMetadata(meta.NamespaceName, meta.ResourceDefinitionType, "", resource.VersionUndefined))
	if err != nil {
		return "", false, err
	}

	for _, r := range list.Items {
		if rd, ok := r.(*meta.ResourceDefinition); ok && rd.TypedSpec().Type == t {
			return rd.TypedSpec().Sensitivity, true, nil
		}
	}

	return "", false, nil
}

// yamlNode parses a text so that it is shown as YAML inside other YAML.
func yamlNode(text string) (any, error) {
	var node yaml.Node
	if err := yaml.Unmarshal([]byte(text), &node); err != nil {
		return nil, err
	}

	if len(node.Content) == 0 {
		return nil, nil //nolint:nilnil // an empty document is YAML's null
	}

	return node.Content[0], nil
}
