//go:build linux

package containers

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/talos-factory/talos-factory/config"
)

func TestHosts(t *testing.T) {
	r := config.Registries{
		Mirrors: map[string]config.Mirror{
			"10.0.2.2:5000": {Endpoints: []string{"http://10.0.2.2:5000"}},
			"docker.io":     {Endpoints: []string{"https://a.example.org/docker", "https://b.example.org/x/v2"}, OverridePath: true},
			"only.org":      {Endpoints: []string{"https://a.example.org"}, SkipFallback: true},
			"*":             {Endpoints: []string{"https://any.example.org"}, SkipFallback: true},
		},
	}
	for registry, want := range map[string][]string{
		"10.0.2.2:5000": {"http://10.0.2.2:5000/v2", "https://10.0.2.2:5000/v2"},
		"docker.io":     {"https://a.example.org/docker", "https://b.example.org/x/v2", "https://registry-1.docker.io/v2"},
		"only.org":      {"https://a.example.org/v2"},
		"other.org":     {"https://any.example.org/v2"},
	} {
		all, err := hosts(r)(registry)
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for _, h := range all {
			got = append(got, h.Scheme+"://"+h.Host+h.Path)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s (-want +got):\n%s", registry, diff)
		}
	}

	all, err := hosts(config.Registries{})("127.0.0.1:5000")
	if err != nil || len(all) != 1 || all[0].Scheme != "http" {
		t.Errorf("on this host: got %+v, %v", all, err)
	}
}
