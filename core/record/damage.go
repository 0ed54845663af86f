package record

import (
	"fmt"

	"condensate.dev/cnd/core/fault"
)

// ErrNotRecord: the input does not begin like a record at all.
var ErrNotRecord = fault.New(fault.Invalid, "not-a-record", "input is not a record")

// Damage is the first bad place of a record that does not verify. It unwraps to [ErrDamaged], [ErrNoHead] or
// [ErrHead] (class corrupt), or to [ErrNotRecord] or [ErrVersion] (class invalid) when the first line is not one of
// this format.
type Damage struct {
	Line   int64    // 1-based, of an export; 0 when the thread was read from a store
	Thread ThreadID // of the entry that was expected at this place; "" at the first line
	Seq    Seq      // of the entry that was expected at this place
	Why    string
	Err    *fault.Error
}

// Error implements error.
func (d *Damage) Error() string {
	place := fmt.Sprintf("entry %d of %s", d.Seq, d.Thread)
	if d.Thread == "" {
		place = fmt.Sprintf("entry %d", d.Seq)
	}
	if d.Line > 0 {
		place = fmt.Sprintf("line %d (%s)", d.Line, place)
	}
	return fmt.Sprintf("%s: %s: %s", d.Err.Message, place, d.Why)
}

// Unwrap returns what kind of damage it is.
func (d *Damage) Unwrap() error { return d.Err }
