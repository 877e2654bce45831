package bench

import (
	"encoding/binary"
	"fmt"

	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"

	"edged/drivers/tag"
	"edged/uaserver/wire"
)

// overflow is the InfoType DataValue with its Overflow bit (Part 4, 7.39.1).
const overflow = 0x0480

// notice is a MonitoredItemNotification.
type notice struct {
	handle uint32
	known  bool   // number holds the value
	number uint32 // the low bits of a whole number; of text, what it is in decimal
	code   ua.StatusCode
	source tag.Time // 0: none
}

// published is a PublishResponse up to its notifications.
type published struct {
	sub, sequence uint32
	more          bool
	keepAlive     bool
	data          []byte // what follows the count of notifications
	parts         int    // ExtensionObjects with notifications
}

// parsePublished reads a PublishResponse from behind its ResponseHeader (Part 4, 5.14.5).
func parsePublished(b []byte) (p published, err error) {
	r := wire.NewReader(b)
	p.sub = r.Uint32()
	r.Skip(4 * max(r.Count(4), 0)) // AvailableSequenceNumbers
	p.more = r.Bool()
	p.sequence = r.Uint32()
	r.Skip(8) // PublishTime
	p.parts = max(r.Count(2), 0)
	p.keepAlive = p.parts == 0
	p.data = r.Rest()
	return p, r.Err()
}

// each calls do for every notification of data changes. A StatusChangeNotification is an error: the Subscription is gone.
// Lists of events go to events whole.
func (p *published) each(events func(body []byte) error, do func(n *notice)) error {
	b := p.data
	for range p.parts {
		r := wire.NewReader(b)
		kind, encoding := r.NodeID(), r.Uint8()
		size := r.Uint32()
		body := r.Rest()
		if r.Err() != nil || encoding != wire.BinaryBody || uint64(size) > uint64(len(body)) {
			return errCut
		}
		b, body = body[size:], body[:size]
		switch kind.Num {
		case id.DataChangeNotification_Encoding_DefaultBinary:
			if err := eachNotice(body, do); err != nil {
				return err
			}
		case id.EventNotificationList_Encoding_DefaultBinary:
			if err := events(body); err != nil {
				return err
			}
		case id.StatusChangeNotification_Encoding_DefaultBinary:
			r := wire.NewReader(body)
			return fmt.Errorf("subscription %d has ended: %w", p.sub, ua.StatusCode(r.Uint32()))
		default:
			return fmt.Errorf("a notification of type i=%d", kind.Num)
		}
	}
	return nil
}

// leastNotice is the size of a notification without anything: the handle and the mask.
const leastNotice = 5

// eachNotice walks over a DataChangeNotification.
func eachNotice(b []byte, do func(n *notice)) error {
	count, b, ok := count(b, leastNotice)
	if !ok {
		return errCut
	}
	var n notice
	for range count {
		if b, ok = n.scan(b); !ok {
			return errCut
		}
		do(&n)
	}
	return nil
}

// scan reads one notification and returns what follows it.
func (n *notice) scan(b []byte) ([]byte, bool) {
	if len(b) < leastNotice {
		return nil, false
	}
	mask := b[4] & dataFields
	*n = notice{handle: binary.LittleEndian.Uint32(b)}
	if b = b[leastNotice:]; mask&hasValue != 0 {
		rest := passVariant(b)
		if rest == nil {
			return nil, false
		}
		n.value(b[:len(b)-len(rest)])
		b = rest
	}
	if mask&hasStatus != 0 {
		if len(b) < 4 {
			return nil, false
		}
		n.code = ua.StatusCode(binary.LittleEndian.Uint32(b))
		b = b[4:]
	}
	size := int(timesSize[mask])
	if len(b) < size {
		return nil, false
	}
	if mask&hasSource != 0 {
		n.source = tag.Time(binary.LittleEndian.Uint64(b))
	}
	return b[size:], true
}

// Variants by the byte that they begin with.
const (
	ofInt16, ofUint16, ofInt32, ofUint32, ofInt64, ofUint64 = 4, 5, 6, 7, 8, 9
	ofString                                                = 12
)

// value takes the number out of a Variant.
func (n *notice) value(b []byte) {
	switch b[0] {
	case ofInt16, ofUint16:
		n.number, n.known = uint32(binary.LittleEndian.Uint16(b[1:])), true
	case ofInt32, ofUint32, ofInt64, ofUint64:
		n.number, n.known = binary.LittleEndian.Uint32(b[1:]), true
	case ofString:
		n.known = len(b) > 5
		for _, digit := range b[min(5, len(b)):] {
			n.number = n.number*10 + uint32(digit-'0')
			n.known = n.known && digit >= '0' && digit <= '9'
		}
	}
}
