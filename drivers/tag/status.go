package tag

import "strconv"

// Status is an OPC UA StatusCode (Part 4, 7.39).
type Status uint32

// The codes that the field side gives (contract of a tag's status: README, "What a status means").
const (
	Good                                    Status = 0
	UncertainNoCommunicationLastUsableValue Status = 0x408F0000
	BadUnexpectedError                      Status = 0x80010000
	BadInternalError                        Status = 0x80020000
	BadOutOfMemory                          Status = 0x80030000
	BadResourceUnavailable                  Status = 0x80040000
	BadCommunicationError                   Status = 0x80050000
	BadTimeout                              Status = 0x800A0000
	BadShutdown                             Status = 0x800C0000
	BadUserAccessDenied                     Status = 0x801F0000
	BadNoCommunication                      Status = 0x80310000
	BadWaitingForInitialData                Status = 0x80320000
	BadNodeIDUnknown                        Status = 0x80340000
	BadIndexRangeInvalid                    Status = 0x80360000
	BadIndexRangeNoData                     Status = 0x80370000
	BadNotReadable                          Status = 0x803A0000
	BadNotWritable                          Status = 0x803B0000
	BadOutOfRange                           Status = 0x803C0000
	BadNotSupported                         Status = 0x803D0000
	BadWriteNotSupported                    Status = 0x80730000
	BadTypeMismatch                         Status = 0x80740000
	BadConfigurationError                   Status = 0x80890000
	BadDeviceFailure                        Status = 0x808B0000
	BadOutOfService                         Status = 0x808D0000
	BadInvalidState                         Status = 0x80AF0000
)

var statusNames = map[Status]string{
	Good: "Good", UncertainNoCommunicationLastUsableValue: "UncertainNoCommunicationLastUsableValue",
	BadUnexpectedError: "BadUnexpectedError", BadInternalError: "BadInternalError", BadOutOfMemory: "BadOutOfMemory",
	BadResourceUnavailable: "BadResourceUnavailable", BadCommunicationError: "BadCommunicationError",
	BadTimeout: "BadTimeout", BadShutdown: "BadShutdown", BadUserAccessDenied: "BadUserAccessDenied",
	BadNoCommunication: "BadNoCommunication", BadWaitingForInitialData: "BadWaitingForInitialData",
	BadNodeIDUnknown: "BadNodeIdUnknown", BadIndexRangeInvalid: "BadIndexRangeInvalid",
	BadIndexRangeNoData: "BadIndexRangeNoData", BadNotReadable: "BadNotReadable", BadNotWritable: "BadNotWritable",
	BadOutOfRange: "BadOutOfRange", BadNotSupported: "BadNotSupported", BadWriteNotSupported: "BadWriteNotSupported",
	BadTypeMismatch: "BadTypeMismatch", BadConfigurationError: "BadConfigurationError",
	BadDeviceFailure: "BadDeviceFailure", BadOutOfService: "BadOutOfService", BadInvalidState: "BadInvalidState",
}

// IsGood reports whether the severity is Good.
func (s Status) IsGood() bool { return s>>30 == 0 }

// IsUncertain reports whether the severity is Uncertain.
func (s Status) IsUncertain() bool { return s>>30 == 1 }

// IsBad reports whether the severity is Bad.
func (s Status) IsBad() bool { return s>>31 == 1 }

// String is the standard's name of the code, without its info bits.
func (s Status) String() string {
	if n, ok := statusNames[s&0xFFFF0000]; ok {
		return n
	}
	return "0x" + strconv.FormatUint(uint64(s), 16)
}
