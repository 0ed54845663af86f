package pebblestore_test

import (
	"testing"

	"github.com/cockroachdb/pebble/v2/vfs"

	"condensate.dev/cnd/adapters/pebblestore"
	"condensate.dev/cnd/core/record"
	"condensate.dev/cnd/core/record/recordtest"
)

func TestStore(t *testing.T) {
	for name, options := range map[string]pebblestore.Options{
		"disk":        {},
		"memory":      {FS: vfs.NewMem()},
		"projections": {Project: countEntries},
	} {
		t.Run(name, func(t *testing.T) {
			recordtest.TestStore(t, func(t *testing.T) record.Store { return openStore(t, t.TempDir(), options) })
		})
	}
}
