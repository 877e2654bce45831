package modbus

import (
	"errors"
	"fmt"

	gomodbus "github.com/goburrow/modbus"

	"edged/drivers"
	"edged/drivers/tag"
)

// exceptions are what a device's exception codes mean (Application Protocol, 7).
var exceptions = map[byte]struct {
	status tag.Status
	kind   drivers.FaultKind
	write  drivers.Outcome // of a write
}{
	gomodbus.ExceptionCodeIllegalFunction:                    {tag.BadNotSupported, drivers.Refused, drivers.NotDone},
	gomodbus.ExceptionCodeIllegalDataAddress:                 {tag.BadConfigurationError, drivers.Refused, drivers.NotDone},
	gomodbus.ExceptionCodeIllegalDataValue:                   {tag.BadConfigurationError, drivers.Refused, drivers.NotDone},
	gomodbus.ExceptionCodeServerDeviceFailure:                {tag.BadDeviceFailure, drivers.Refused, drivers.Unknown},
	gomodbus.ExceptionCodeAcknowledge:                        {tag.BadResourceUnavailable, drivers.Busy, drivers.Unknown},
	gomodbus.ExceptionCodeServerDeviceBusy:                   {tag.BadResourceUnavailable, drivers.Busy, drivers.NotDone},
	gomodbus.ExceptionCodeMemoryParityError:                  {tag.BadDeviceFailure, drivers.Refused, drivers.Unknown},
	gomodbus.ExceptionCodeGatewayPathUnavailable:             {tag.BadNoCommunication, drivers.Mute, drivers.NotDone},
	gomodbus.ExceptionCodeGatewayTargetDeviceFailedToRespond: {tag.BadNoCommunication, drivers.Mute, drivers.Unknown},
}

// exceptionOf is the exception code in err, or 0.
func exceptionOf(err error) byte {
	var e *gomodbus.ModbusError
	if errors.As(err, &e) {
		return e.ExceptionCode
	}
	return 0
}

// fault makes the error of one exchange the device's fault and the status of what it was to read or write. For a link
// that is lost, fault is nil.
func (d *Device) fault(err error, write bool, what string) (tag.Status, *drivers.Fault) {
	var lost *lostError
	if errors.As(err, &lost) {
		return tag.BadNoCommunication, nil
	}
	status, kind, outcome := tag.BadCommunicationError, drivers.Garbled, drivers.Unknown
	if errors.Is(err, errMute) {
		status, kind = tag.BadNoCommunication, drivers.Mute
		if write {
			status = tag.BadTimeout
		}
	} else if code := exceptionOf(err); code != 0 {
		e, known := exceptions[code]
		if !known {
			e.status, e.kind, e.write = tag.BadDeviceFailure, drivers.Refused, drivers.Unknown
		}
		if d.quirks.busy(code) {
			e = exceptions[gomodbus.ExceptionCodeServerDeviceBusy]
		}
		status, kind, outcome = e.status, e.kind, e.write
		if write && code == gomodbus.ExceptionCodeIllegalDataValue && kind != drivers.Busy {
			status = tag.BadOutOfRange
		}
	}
	return status, &drivers.Fault{Kind: kind, Outcome: outcome, Err: fmt.Errorf("%s: %s: %w", d.name, what, err)}
}
