package config_test

import (
	"fmt"

	"github.com/talos-factory/talos-factory/config"
)

func ExampleLoad() {
	_, err := config.Load([]byte("version: v1alpha1\nmachine:\n  tokn: abc\n"))
	fmt.Println(err)
	// Output: line 3, column 3: unknown field machine.tokn (did you mean machine.token?)
}
