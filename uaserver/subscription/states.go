package subscription

// state of a Subscription (Part 4, 5.14.1.2, table 82).
type state uint8

const (
	closed state = iota
	creating
	normal
	late
	keepAlive
)

var stateNames = [...]string{"CLOSED", "CREATING", "NORMAL", "LATE", "KEEPALIVE"}

// String is the standard's name of the state.
func (s state) String() string { return stateNames[s] }

// event is what a Subscription's state machine hears.
type event uint8

const (
	onCreate        event = iota // CreateSubscription arrives
	onCreateFailed               // it cannot be done
	onCreated                    // it can
	onPublish                    // a Publish request arrives that this Subscription may use
	onTimer                      // the publishing timer expires
	onModify                     // ModifySubscription arrives
	onSetPublishing              // SetPublishingMode arrives
	onRepublish                  // Republish arrives
	onItems                      // a MonitoredItem service of the Subscription arrives
	onDelete                     // DeleteSubscriptions arrives
	onTransfer                   // TransferSubscriptions arrives
)

// facts are the standard's state variables and parameters (tables 83 and 84).
type facts struct {
	queued    bool   // PublishingReqQueued
	enabled   bool   // PublishingEnabled
	available bool   // NotificationsAvailable
	more      bool   // MoreNotifications
	sent      bool   // MessageSent
	found     bool   // RequestedMessageFound
	changed   bool   // SessionChanged()
	validated bool   // ClientValidated()
	keepAlive uint32 // KeepAliveCounter
	every     uint32 // what ResetKeepAliveCounter sets it to
	lifetime  uint32 // LifetimeCounter
}

// action is a set of the standard's functions (table 85). Whoever carries it out does so in the order of the bits.
type action uint16

const (
	startTimer      action = 1 << iota // StartPublishingTimer: counts the lifetime down by one
	resetLifetime                      // ResetLifetimeCounter
	resetKeepAlive                     // ResetKeepAliveCounter
	countKeepAlive                     // KeepAliveCounter--
	deleteAcked                        // DeleteAckedNotificationMsgs: done for the whole session when a Publish arrives
	enqueue                            // EnqueuePublishingReq
	dequeue                            // DequeuePublishReq
	returnMessage                      // ReturnNotifications, MessageSent = TRUE
	returnKeepAlive                    // ReturnKeepAlive, MessageSent = TRUE
	clearMore                          // MoreNotifications = FALSE
	deleteItems                        // DeleteMonitoredItems
	issueStatus                        // IssueStatusChangeNotification, to the session that it has now
	setSession                         // SetSession
)

// in is a set of states.
type in uint8

const (
	inClosed    in = 1 << closed
	inCreating  in = 1 << creating
	inNormal    in = 1 << normal
	inLate      in = 1 << late
	inKeepAlive in = 1 << keepAlive
	inAny          = inNormal | inLate | inKeepAlive
)

// row is one row of table 82. The guard may be nil: always.
type row struct {
	number int
	states in
	event  event
	guard  func(f facts) bool
	to     state // closed with stay: the state is kept
	stay   bool
	action action
}

// pending: something could be sent now.
func pending(f facts) bool { return f.enabled && f.available }

// idle: a message could only be a keep-alive.
func idle(f facts) bool { return !pending(f) }

// table is table 82 in the order in which its rows are tried: 27 comes before the rows of the same event, since a
// Subscription whose lifetime ends sends nothing more. Row 26 is missing: a Subscription hears of no DeleteSubscriptions
// of a session that it does not belong to.
//
// Three things are made exact where the table leaves them open. The timer is started before the lifetime is reset, so
// that the lifetime is that number of expiries without a Publish request, as 5.14.2.2 defines it. A late keep-alive
// (7, 11) resets the keep-alive counter, or the next would follow at once. A keep-alive count of one is due at every
// expiry, so rows 9a and 9b stand before 9.
var table = [...]row{
	{1, inClosed, onCreate, nil, creating, false, 0},
	{2, inCreating, onCreateFailed, nil, closed, false, 0},
	{3, inCreating, onCreated, nil, normal, false, resetLifetime | resetKeepAlive | clearMore},

	{27, inAny, onTimer, func(f facts) bool { return f.lifetime <= 1 }, closed, false, deleteItems | issueStatus},

	{5, inNormal, onPublish, func(f facts) bool { return f.enabled && f.more }, normal, false,
		resetLifetime | deleteAcked | returnMessage},
	{4, inNormal, onPublish, nil, normal, false, deleteAcked | enqueue},
	{6, inNormal, onTimer, func(f facts) bool { return f.queued && pending(f) }, normal, false,
		startTimer | resetLifetime | dequeue | returnMessage},
	{7, inNormal, onTimer, func(f facts) bool { return f.queued && !f.sent && idle(f) }, keepAlive, false,
		startTimer | resetLifetime | resetKeepAlive | dequeue | returnKeepAlive},
	{8, inNormal, onTimer, func(f facts) bool { return !f.queued && (!f.sent || pending(f)) }, late, false, startTimer},
	{9, inNormal, onTimer, func(f facts) bool { return f.every <= 1 && f.queued }, keepAlive, false,
		startTimer | resetLifetime | resetKeepAlive | dequeue | returnKeepAlive},
	{9, inNormal, onTimer, func(f facts) bool { return f.every <= 1 }, late, false, startTimer},
	{9, inNormal, onTimer, nil, keepAlive, false, startTimer | resetKeepAlive | countKeepAlive},

	{10, inLate, onPublish, func(f facts) bool { return f.enabled && (f.available || f.more) }, normal, false,
		resetLifetime | deleteAcked | returnMessage},
	{11, inLate, onPublish, nil, keepAlive, false, resetLifetime | resetKeepAlive | deleteAcked | returnKeepAlive},
	{12, inLate, onTimer, nil, late, false, startTimer},

	{13, inKeepAlive, onPublish, nil, keepAlive, false, deleteAcked | enqueue},
	{14, inKeepAlive, onTimer, func(f facts) bool { return f.queued && pending(f) }, normal, false,
		startTimer | resetLifetime | dequeue | returnMessage},
	{15, inKeepAlive, onTimer, func(f facts) bool { return f.queued && f.keepAlive <= 1 }, keepAlive, false,
		startTimer | resetLifetime | dequeue | returnKeepAlive | resetKeepAlive},
	{16, inKeepAlive, onTimer, func(f facts) bool { return f.keepAlive > 1 && idle(f) }, keepAlive, false,
		startTimer | countKeepAlive},
	{17, inKeepAlive, onTimer, nil, late, false, startTimer},

	{18, inAny, onModify, nil, closed, true, resetLifetime},
	{19, inAny, onSetPublishing, nil, closed, true, resetLifetime | clearMore},
	{20, inAny, onRepublish, func(f facts) bool { return f.found }, closed, true, resetLifetime},
	{21, inAny, onRepublish, nil, closed, true, resetLifetime},
	{0, inAny, onItems, nil, closed, true, resetLifetime}, // no row: 5.14.1.1 says it of every service of the Subscription
	{22, inAny, onTransfer, func(f facts) bool { return !f.changed }, closed, true, resetLifetime},
	{23, inAny, onTransfer, func(f facts) bool { return f.validated }, closed, true, resetLifetime | issueStatus | setSession},
	{24, inAny, onTransfer, nil, closed, true, 0},
	{25, inAny, onDelete, nil, closed, false, deleteItems},
}

// next is what a Subscription does with an event: the number of the table's row, the new state and the actions. An
// event that has no row in that state changes nothing; its row is -1.
func next(s state, e event, f facts) (number int, to state, do action) {
	for i := range table {
		r := &table[i]
		if r.event != e || r.states&(1<<s) == 0 || r.guard != nil && !r.guard(f) {
			continue
		}
		if r.stay {
			return r.number, s, r.action
		}
		return r.number, r.to, r.action
	}
	return -1, s, 0
}
