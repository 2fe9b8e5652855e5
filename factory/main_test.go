package factory

import (
	"os"
	"testing"

	"github.com/talos-factory/talos-factory/build"
)

// The test binary is the first process in the sandboxes of the steps that tests run.
func TestMain(m *testing.M) {
	if build.IsStub() {
		build.StubMain()
	}
	os.Exit(m.Run())
}
