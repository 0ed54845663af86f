package thread

import (
	"bytes"
	"encoding/json"
	"fmt"

	"condensate.dev/cnd/core/record"
)

// Encode returns body as one JSON object in the strict form of a record body: no HTML escaping, tokens of raw values
// kept as they are. It panics when body cannot be encoded, which no type of this package can cause unless a raw value
// is not JSON.
func Encode(body any) []byte {
	var b bytes.Buffer
	enc := json.NewEncoder(&b)
	enc.SetEscapeHTML(false)
	if err := enc.Encode(body); err != nil {
		panic(fmt.Sprintf("thread: body %T: %v", body, err))
	}
	return bytes.TrimSuffix(b.Bytes(), []byte("\n"))
}

// Decode reads the body of e into a value of the type that its kind has. An erased body, or one that does not fit,
// is an error that names the entry.
func Decode[T any](e record.Entry) (T, error) {
	var body T
	if e.Body == nil {
		return body, fmt.Errorf("entry %d of %s (%s): body is erased: %w", e.Seq, e.Thread, e.Kind, record.ErrInvalidEntry)
	}
	if err := json.Unmarshal(e.Body, &body); err != nil {
		return body, fmt.Errorf("entry %d of %s (%s): %v: %w", e.Seq, e.Thread, e.Kind, err, record.ErrInvalidEntry)
	}
	return body, nil
}
