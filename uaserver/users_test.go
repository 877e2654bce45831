package uaserver

import (
	"bytes"
	"context"
	"crypto"
	"crypto/aes"
	"crypto/cipher"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"hash"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gopcua/opcua"
	"github.com/gopcua/opcua/id"
	"github.com/gopcua/opcua/ua"
	"golang.org/x/crypto/bcrypt"

	"edged/uaserver/address"
	"edged/uaserver/channel"
	"edged/uaserver/pki"
	"edged/uaserver/session"
	"edged/uaserver/uatest"
)

// roster is a Users of a few.
type roster struct {
	mu       sync.Mutex // guards all below
	byName   map[string]User
	byPrint  map[pki.Thumbprint]User
	byCommon map[string]User
}

func (r *roster) Offers() (passwords, certificates bool) {
	return len(r.byName) > 0, len(r.byPrint) > 0
}

func (r *roster) ByName(name string) (User, bool) {
	r.mu.Lock()
	defer r.mu.Unlock()
	u, ok := r.byName[name]
	return u, ok
}

func (r *roster) ByCertificate(p pki.Thumbprint) (User, bool) {
	u, ok := r.byPrint[p]
	return u, ok
}

func (r *roster) ByCommonName(name string) (User, bool) {
	u, ok := r.byCommon[name]
	return u, ok
}

const mayLook = address.MayBrowse | address.MayRead

// plantUsers are anna, who operates, boss, who may all, and carl, who has a certificate.
func plantUsers(t testing.TB) *roster {
	t.Helper()
	hash := func(password string) []byte {
		h, err := bcrypt.GenerateFromPassword([]byte(password), bcrypt.MinCost)
		if err != nil {
			t.Fatal(err)
		}
		return h
	}
	return &roster{
		byName: map[string]User{
			"anna": {"anna", hash("open sesame"), (mayLook | address.MayWrite).With(address.Operator)},
			"boss": {"boss", hash("admin's"), (mayLook | address.MayWrite | address.MayCall | address.MayAudit).With(address.Admin)},
		},
		byPrint: map[pki.Thumbprint]User{
			pki.ThumbprintOf(carl(t).DER): {Name: "carl", Rights: mayLook.With(address.Observer)},
		},
	}
}

var carlOnce sync.Map

// carl is the certificate of a user.
func carl(t testing.TB) *uatest.Identity {
	if id, ok := carlOnce.Load("carl"); ok {
		return id.(*uatest.Identity)
	}
	id, _ := carlOnce.LoadOrStore("carl", uatest.NewIdentity(t, uatest.Key(t, 2048, 2), nil, nil))
	return id.(*uatest.Identity)
}

// guarded is a server that only users enter.
func guarded(t testing.TB, change func(*Config)) *fixture {
	return start(t, func(c *Config) {
		c.Anonymous, c.Users = 0, plantUsers(t)
		if change != nil {
			change(c)
		}
	})
}

// seal is a secret as a client makes it: the password and the nonce, encrypted for a certificate.
func seal(t testing.TB, own *pki.Own, sum hash.Hash, password string, nonce []byte) []byte {
	t.Helper()
	b := binary.LittleEndian.AppendUint32(nil, uint32(len(password)+len(nonce)))
	b = append(append(b, password...), nonce...)
	key := &own.Key().PublicKey
	var out []byte
	for block := range slices.Chunk(b, key.Size()-2*sum.Size()-2) {
		sealed, err := rsa.EncryptOAEP(sum, rand.Reader, key, block, nil)
		if err != nil {
			t.Fatal(err)
		}
		out = append(out, sealed...)
	}
	return out
}

const (
	oaep1   = "http://www.w3.org/2001/04/xmlenc#rsa-oaep"
	oaep256 = "http://opcfoundation.org/UA/security/rsa-oaep-sha2-256"
)

// nameToken is the token of a user with a password, for the session that p has made.
func (f *fixture) nameToken(p *peer, user, password string) *ua.UserNameIdentityToken {
	return &ua.UserNameIdentityToken{
		PolicyID: userNamePolicy + "Basic256Sha256", UserName: user, EncryptionAlgorithm: oaep1,
		Password: seal(p.t, f.own, sha1.New(), password, p.nonce),
	}
}

// sealedToken is a token whose password is in an RsaEncryptedSecret of Basic256Sha256 (Part 4, 7.40.2.3).
func (f *fixture) sealedToken(p *peer, user, password string, nonce []byte) *ua.UserNameIdentityToken {
	p.t.Helper()
	bytesOf := func(dst, b []byte) []byte { return append(binary.LittleEndian.AppendUint32(dst, uint32(len(b))), b...) }
	signing, encrypting, iv := bytes.Repeat([]byte{1}, 32), bytes.Repeat([]byte{2}, 32), bytes.Repeat([]byte{3}, 16)
	keyData, err := rsa.EncryptOAEP(sha1.New(), rand.Reader, &f.own.Key().PublicKey, bytesOf(bytesOf(bytesOf(nil, signing), encrypting), iv), nil)
	if err != nil {
		p.t.Fatal(err)
	}
	payload := bytesOf(bytesOf(nil, nonce), []byte(password))
	pad := (16 - (len(payload)+2)%16) % 16
	payload = binary.LittleEndian.AppendUint16(append(payload, bytes.Repeat([]byte{byte(pad)}, pad)...), uint16(pad))
	block, err := aes.NewCipher(encrypting)
	if err != nil {
		p.t.Fatal(err)
	}
	cipher.NewCBCEncrypter(block, iv).CryptBlocks(payload, payload)
	print := f.own.Thumbprint()
	rest := bytesOf(bytesOf(nil, []byte(ua.SecurityPolicyURIBasic256Sha256)), print[:])
	rest = binary.LittleEndian.AppendUint64(rest, 0) // when it was signed
	rest = append(binary.LittleEndian.AppendUint16(rest, uint16(len(keyData))), keyData...)
	rest = append(rest, payload...)
	b := []byte{1, 0, 0x89, 0x44, 1} // i=17545, a binary body
	b = append(binary.LittleEndian.AppendUint32(b, uint32(len(rest)+32)), rest...)
	mac := hmac.New(sha256.New, signing)
	mac.Write(b)
	return &ua.UserNameIdentityToken{PolicyID: userNamePolicy + "Basic256Sha256", UserName: user, Password: mac.Sum(b)}
}

func TestUserNames(t *testing.T) {
	var f *fixture
	const right = "open sesame"
	stale := bytes.Repeat([]byte{7}, 32)
	for _, row := range []struct {
		name string
		make func(p *peer) any
		want ua.StatusCode
	}{
		{"7.40.4 right", func(p *peer) any { return f.nameToken(p, "anna", right) }, ua.StatusGood},
		{"C7 Aes256_Sha256_RsaPss", func(p *peer) any {
			tk := f.nameToken(p, "anna", right)
			tk.PolicyID, tk.EncryptionAlgorithm = userNamePolicy+"Aes256_Sha256_RsaPss", oaep256
			tk.Password = seal(t, f.own, sha256.New(), right, p.nonce)
			return tk
		}, ua.StatusGood},
		{"7.40.2.3 an EncryptedSecret", func(p *peer) any { return f.sealedToken(p, "anna", right, p.nonce) }, ua.StatusGood},
		{"7.40.2.3 an EncryptedSecret with a wrong password", func(p *peer) any { return f.sealedToken(p, "anna", "open", p.nonce) }, ua.StatusBadIdentityTokenRejected},
		{"7.40.2.4 an EncryptedSecret that was sent before", func(p *peer) any { return f.sealedToken(p, "anna", right, stale) }, ua.StatusBadIdentityTokenRejected},
		{"7.40.2.4 an EncryptedSecret without a nonce", func(p *peer) any { return f.sealedToken(p, "anna", right, nil) }, ua.StatusBadIdentityTokenRejected},
		{"7.40.2.3 half an EncryptedSecret", func(p *peer) any {
			tk := f.sealedToken(p, "anna", right, p.nonce)
			tk.Password = tk.Password[:len(tk.Password)/2]
			return tk
		}, ua.StatusBadIdentityTokenRejected},
		{"C6 wrong password", func(p *peer) any { return f.nameToken(p, "anna", "open") }, ua.StatusBadIdentityTokenRejected},
		{"C6 empty password", func(p *peer) any { return f.nameToken(p, "anna", "") }, ua.StatusBadIdentityTokenRejected},
		{"C6 unknown user", func(p *peer) any { return f.nameToken(p, "eve", right) }, ua.StatusBadIdentityTokenRejected},
		{"C6 no user", func(p *peer) any { return f.nameToken(p, "", right) }, ua.StatusBadIdentityTokenInvalid},
		{"C6 user name of 1,000 bytes", func(p *peer) any { return f.nameToken(p, strings.Repeat("x", 1000), right) }, ua.StatusBadIdentityTokenInvalid},
		{"C7 clear text", func(p *peer) any {
			return &ua.UserNameIdentityToken{PolicyID: userNamePolicy + "Basic256Sha256", UserName: "anna", Password: []byte(right)}
		}, ua.StatusBadIdentityTokenInvalid},
		{"another algorithm", func(p *peer) any {
			tk := f.nameToken(p, "anna", right)
			tk.EncryptionAlgorithm = "http://www.w3.org/2001/04/xmlenc#rsa-1_5"
			return tk
		}, ua.StatusBadIdentityTokenInvalid},
		{"C6 unknown policy", func(p *peer) any {
			tk := f.nameToken(p, "anna", right)
			tk.PolicyID = "username"
			return tk
		}, ua.StatusBadIdentityTokenInvalid},
		{"C6 a policy that encrypts nothing", func(p *peer) any {
			tk := f.nameToken(p, "anna", right)
			tk.PolicyID, tk.EncryptionAlgorithm = userNamePolicy+"None", ""
			return tk
		}, ua.StatusBadIdentityTokenInvalid},
		{"a secret that was sent before", func(p *peer) any {
			tk := f.nameToken(p, "anna", right)
			tk.Password = seal(t, f.own, sha1.New(), right, stale)
			return tk
		}, ua.StatusBadIdentityTokenRejected},
		{"a secret that is noise", func(p *peer) any {
			tk := f.nameToken(p, "anna", right)
			tk.Password = bytes.Repeat([]byte{1}, 256)
			return tk
		}, ua.StatusBadIdentityTokenRejected},
		{"a secret of 100 blocks", func(p *peer) any {
			tk := f.nameToken(p, "anna", right)
			tk.Password = bytes.Repeat(tk.Password, 100)
			return tk
		}, ua.StatusBadIdentityTokenRejected},
		{"no secret", func(p *peer) any {
			tk := f.nameToken(p, "anna", right)
			tk.Password = nil
			return tk
		}, ua.StatusBadIdentityTokenRejected},
		{"C6 anonymous is not allowed", func(p *peer) any { return anonymous() }, ua.StatusBadIdentityTokenRejected},
		{"C6 no token is not allowed", func(p *peer) any { return nil }, ua.StatusBadIdentityTokenRejected},
	} {
		f = guarded(t, nil) // nobody is locked out by the row before
		p := f.dial(t, nil)
		p.create()
		if _, code := p.call(activateRequest(row.make(p))); code != row.want {
			t.Errorf("%s: %v, want %v", row.name, code, row.want)
		}
		_, code := p.call(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{value(plantID("boiler.code"))}})
		if (code == ua.StatusGood) != (row.want == ua.StatusGood) {
			t.Errorf("%s: a Read afterwards: %v", row.name, code)
		}
	}
}

// try logs in on a channel of its own, and returns the session.
func (f *fixture) try(t testing.TB, user, password string, change func(*uatest.Options)) (*peer, ua.StatusCode) {
	t.Helper()
	p := f.dial(t, change)
	p.create()
	req := activateRequest(f.nameToken(p, user, password))
	_, code := p.call(req)
	return p, code
}

// TestLockOut: C5. Client and server are at one address, so that the other client is another certificate.
func TestLockOut(t *testing.T) {
	f := guarded(t, nil)
	for range mayFail {
		if _, code := f.try(t, "anna", "guess", nil); code != ua.StatusBadIdentityTokenRejected {
			t.Fatalf("a guess: %v", code)
		}
	}
	if _, code := f.try(t, "anna", "open sesame", nil); code != ua.StatusBadIdentityTokenRejected {
		t.Errorf("C5 right from the same address: %v", code)
	}
	p := f.dial(t, f.secured(t))
	if code := f.signIn(p, func() any { return f.nameToken(p, "anna", "open sesame") }, nil); code != ua.StatusGood {
		t.Errorf("C5 right with a certificate: %v", code)
	}
}

// signIn makes and activates a session on a secured channel of Basic256Sha256 with the usual client's certificate.
func (f *fixture) signIn(p *peer, token func() any, user *uatest.Identity) ua.StatusCode {
	p.t.Helper()
	req := createRequest()
	req.ClientCertificate = p.Options.Identity.DER
	resp := must[*ua.CreateSessionResponse](p, req)
	p.token, p.nonce = resp.AuthenticationToken, resp.ServerNonce
	activate := activateRequest(token())
	sign := func(key *rsa.PrivateKey) *ua.SignatureData {
		sum := sha256.Sum256(append(bytes.Clone(f.own.DER()), p.nonce...))
		sig, err := rsa.SignPKCS1v15(rand.Reader, key, crypto.SHA256, sum[:])
		if err != nil {
			p.t.Fatal(err)
		}
		return &ua.SignatureData{Algorithm: "http://www.w3.org/2001/04/xmldsig-more#rsa-sha256", Signature: sig}
	}
	activate.ClientSignature = sign(p.Options.Identity.Key)
	if user != nil {
		activate.UserTokenSignature = sign(user.Key)
	}
	_, code := p.call(activate)
	return code
}

func TestUserCertificates(t *testing.T) {
	f := guarded(t, nil)
	stranger := uatest.ClientIdentity(t)
	broken := bytes.Clone(carl(t).DER)[:100]
	for _, row := range []struct {
		name   string
		policy string
		der    []byte
		signer *uatest.Identity
		want   ua.StatusCode
	}{
		{"7.40.5 known", certificatePolicy + "Basic256Sha256", carl(t).DER, carl(t), ua.StatusGood},
		{"signed by another key", certificatePolicy + "Basic256Sha256", carl(t).DER, stranger, ua.StatusBadUserSignatureInvalid},
		{"not signed", certificatePolicy + "Basic256Sha256", carl(t).DER, nil, ua.StatusBadUserSignatureInvalid},
		{"signed by another algorithm", certificatePolicy + "Aes256_Sha256_RsaPss", carl(t).DER, carl(t), ua.StatusBadUserSignatureInvalid},
		{"unknown", certificatePolicy + "Basic256Sha256", stranger.DER, stranger, ua.StatusBadIdentityTokenRejected},
		{"half a certificate", certificatePolicy + "Basic256Sha256", broken, carl(t), ua.StatusBadIdentityTokenInvalid},
		{"C6 unknown policy", "x509", carl(t).DER, carl(t), ua.StatusBadIdentityTokenInvalid},
	} {
		p := f.dial(t, f.secured(t))
		code := f.signIn(p, func() any { return &ua.X509IdentityToken{PolicyID: row.policy, CertificateData: row.der} }, row.signer)
		if code != row.want {
			t.Errorf("%s: %v, want %v", row.name, code, row.want)
		}
	}
}

// TestTokenPolicies: C7, every endpoint takes passwords, and none of them in clear text.
func TestTokenPolicies(t *testing.T) {
	f := guarded(t, func(c *Config) { c.Anonymous = mayLook })
	p := f.dial(t, nil)
	meaning := map[string]string{}
	for _, e := range must[*ua.GetEndpointsResponse](p, &ua.GetEndpointsRequest{EndpointURL: "opc.tcp://" + f.addr}).Endpoints {
		kinds := ""
		seen := map[string]bool{}
		for _, tk := range e.UserIdentityTokens {
			kinds += tk.TokenType.String()[len("UserTokenType"):] + " "
			if m, known := meaning[tk.PolicyID]; known && m != tk.SecurityPolicyURI || seen[tk.PolicyID] {
				t.Errorf("C7 policy id %s means two things", tk.PolicyID)
			}
			meaning[tk.PolicyID], seen[tk.PolicyID] = tk.SecurityPolicyURI, true
			if tk.TokenType != ua.UserTokenTypeAnonymous && channel.SecretAlgorithm(tk.SecurityPolicyURI) == "" {
				t.Errorf("C7 %s of %s encrypts nothing", tk.PolicyID, e.SecurityPolicyURI)
			}
		}
		if kinds != "Anonymous UserName Certificate " || len(e.ServerCertificate) == 0 {
			t.Errorf("%s %v: %s with a certificate of %d bytes", e.SecurityPolicyURI, e.SecurityMode, kinds, len(e.ServerCertificate))
		}
	}
}

// TestIdentityChange: a session stays its user's, on whatever channel.
func TestIdentityChange(t *testing.T) {
	f := guarded(t, func(c *Config) { c.Anonymous = mayLook })
	p, code := f.try(t, "anna", "open sesame", nil)
	if code != ua.StatusGood {
		t.Fatal(code)
	}
	if _, code := p.call(activateRequest(anonymous())); code != ua.StatusBadIdentityChangeNotSupported {
		t.Errorf("anna becomes anonymous: %v", code)
	}
	if r := must[*ua.WriteResponse](p, writeOf("boiler.code", int16(1))); r.Results[0] != ua.StatusGood {
		t.Errorf("and is still herself: %v", r.Results[0])
	}
}

// TestCheckUsers: who is removed from the users loses his sessions, and a change of roles is one at once.
func TestCheckUsers(t *testing.T) {
	users := plantUsers(t)
	f := guarded(t, func(c *Config) { c.Users, c.Anonymous = users, mayLook })
	anna, code := f.try(t, "anna", "open sesame", nil)
	boss, code2 := f.try(t, "boss", "admin's", nil)
	if code != ua.StatusGood || code2 != ua.StatusGood {
		t.Fatal(code, code2)
	}
	guest := f.login(t)
	write := func(p *peer) ua.StatusCode {
		resp, code := p.call(writeOf("boiler.code", int16(1)))
		if code != ua.StatusGood {
			return code
		}
		return resp.(*ua.WriteResponse).Results[0]
	}
	f.CheckUsers()
	if a, b := write(anna), write(boss); a != ua.StatusGood || b != ua.StatusGood {
		t.Errorf("nothing has changed: %v %v", a, b)
	}
	users.mu.Lock()
	demoted := users.byName["anna"]
	demoted.Rights = mayLook.With(address.Observer)
	users.byName["anna"] = demoted
	delete(users.byName, "boss")
	users.mu.Unlock()
	f.CheckUsers()
	if a, b := write(anna), write(boss); a != ua.StatusBadUserAccessDenied || b != ua.StatusBadSessionIDInvalid {
		t.Errorf("anna only looks on, boss is gone: %v %v", a, b)
	}
	if code := write(guest); code != ua.StatusBadUserAccessDenied {
		t.Errorf("a guest is no user: %v", code)
	}
}

// TestUsersRights: A10, and Permissions by role.
func TestUsersRights(t *testing.T) {
	f := guarded(t, func(c *Config) { c.Anonymous = mayLook.With(address.Anonymous) })
	permit := func(name string, p address.Permissions) {
		n := f.space.Find(idOf(name))
		own := *n.Attributes
		own.Permissions, n.Attributes = p, &own
	}
	permit("boiler.curve", address.Permissions{Browse: address.Admin, Read: address.Admin, Write: address.Admin})
	permit("boiler.setpoint", address.Permissions{Browse: address.Everybody, Read: address.Everybody, Write: address.Operator})
	f.space.Grant(address.RoleRights{mayLook, 0, mayLook | address.MayWrite, 0, mayLook | address.MayWrite | address.MayCall | address.MayAudit})
	security := ua.NewNumericNodeID(0, 3708) // SessionSecurityDiagnosticsArray
	for _, row := range []struct {
		name           string
		user, password string
		secured        bool
		code           ua.StatusCode // of a write to a tag that says nothing
		setpoint       ua.StatusCode
		secret         ua.StatusCode
		audit          ua.StatusCode
	}{
		{"anonymous", "", "", false, ua.StatusBadUserAccessDenied, ua.StatusBadUserAccessDenied, ua.StatusBadUserAccessDenied, ua.StatusBadUserAccessDenied},
		{"operator", "anna", "open sesame", true, ua.StatusGood, ua.StatusGood, ua.StatusBadUserAccessDenied, ua.StatusBadUserAccessDenied},
		{"admin", "boss", "admin's", true, ua.StatusGood, ua.StatusBadUserAccessDenied, ua.StatusGood, ua.StatusGood},
		{"admin, not encrypted", "boss", "admin's", false, ua.StatusGood, ua.StatusBadUserAccessDenied, ua.StatusGood, ua.StatusBadSecurityModeInsufficient},
	} {
		var p *peer
		code := ua.StatusGood
		switch {
		case row.user == "":
			p = f.login(t)
		case row.secured:
			p = f.dial(t, f.secured(t))
			code = f.signIn(p, func() any { return f.nameToken(p, row.user, row.password) }, nil)
		default:
			p, code = f.try(t, row.user, row.password, nil)
		}
		if code != ua.StatusGood {
			t.Fatalf("%s: %v", row.name, code)
		}
		w := must[*ua.WriteResponse](p, &ua.WriteRequest{NodesToWrite: slices.Concat(writeOf("boiler.code", int16(1)).NodesToWrite,
			writeOf("boiler.setpoint", 20.5).NodesToWrite, writeOf("boiler.curve", []int16{1, 2, 3, 4, 5}).NodesToWrite)}).Results
		if w[0] != row.code || w[1] != row.setpoint || w[2] != row.secret {
			t.Errorf("%s writes: %v", row.name, w)
		}
		r := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{
			value(plantID("boiler.curve")), value(security),
			{NodeID: plantID("boiler.setpoint"), AttributeID: ua.AttributeIDUserAccessLevel, DataEncoding: &ua.QualifiedName{}},
		}})
		if r[0].Status != row.secret || r[1].Status != row.audit {
			t.Errorf("%s reads: %v %v", row.name, r[0].Status, r[1].Status)
		}
		want := uint8(ua.AccessLevelTypeCurrentRead)
		if row.setpoint == ua.StatusGood {
			want |= uint8(ua.AccessLevelTypeCurrentWrite)
		}
		if got := r[2].Value.Value(); got != want {
			t.Errorf("%s: UserAccessLevel %v, want %d", row.name, got, want)
		}
		wrote := map[string]bool{"boiler.code": w[0] == ua.StatusGood, "boiler.setpoint": w[1] == ua.StatusGood, "boiler.curve": w[2] == ua.StatusGood}
		for name, ok := range wrote {
			mine, st := p.permissions(name, ua.AttributeIDUserRolePermissions)
			all := ua.PermissionType(0)
			for _, may := range mine {
				all |= may
			}
			hidden := name == "boiler.curve" && row.secret != ua.StatusGood
			if (st == ua.StatusBadUserAccessDenied) != hidden || !hidden && (len(mine) != 1 || (all&ua.PermissionTypeWrite != 0) != ok) {
				t.Errorf("5.2.10 %s: permissions for %s %v, %v", row.name, name, mine, st)
			}
			every, st := p.permissions(name, ua.AttributeIDRolePermissions)
			if admin := row.audit == ua.StatusGood; (st == ua.StatusGood) != admin {
				t.Errorf("5.2.9 %s: permissions of all roles for %s: %v, %v", row.name, name, every, st)
			} else if write := every[id.WellKnownRole_Operator]&ua.PermissionTypeWrite != 0; admin && write != (name != "boiler.curve") {
				t.Errorf("5.2.9 permissions of all roles for %s: %v", name, every)
			}
		}
		restricted := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{
			{NodeID: security, AttributeID: ua.AttributeIDAccessRestrictions, DataEncoding: &ua.QualifiedName{}},
			{NodeID: plantID("boiler.code"), AttributeID: ua.AttributeIDAccessRestrictions, DataEncoding: &ua.QualifiedName{}},
		}})
		if a, b := restricted[0].Value.Value(), restricted[1].Status; a != uint16(ua.AccessRestrictionTypeEncryptionRequired) || b != ua.StatusBadAttributeIDInvalid {
			t.Errorf("5.2.11 restrictions %v and %v", a, b)
		}
		if got := p.finds("boiler.curve"); got != (row.secret == ua.StatusGood) {
			t.Errorf("%s: browsing shows the curve: %v", row.name, got)
		}
	}
}

// permissions is RolePermissions or UserRolePermissions of a tag, by the number of the role's id.
func (p *peer) permissions(name string, a ua.AttributeID) (map[uint32]ua.PermissionType, ua.StatusCode) {
	p.t.Helper()
	v := p.read(&ua.ReadRequest{NodesToRead: []*ua.ReadValueID{{NodeID: plantID(name), AttributeID: a, DataEncoding: &ua.QualifiedName{}}}})[0]
	if v.Status != ua.StatusGood {
		return nil, v.Status
	}
	out := map[uint32]ua.PermissionType{}
	for _, x := range v.Value.Value().([]*ua.ExtensionObject) {
		r := x.Value.(*ua.RolePermissionType)
		out[r.RoleID.IntID()] = r.Permissions
	}
	return out, v.Status
}

// finds reports whether browsing its device, and a path to it, show a tag; both say the same.
func (p *peer) finds(name string) bool {
	p.t.Helper()
	device, _, _ := strings.Cut(name, ".")
	b := must[*ua.BrowseResponse](p, &ua.BrowseRequest{
		View:          &ua.ViewDescription{ViewID: ua.NewTwoByteNodeID(0)},
		NodesToBrowse: []*ua.BrowseDescription{{NodeID: plantID(device), ReferenceTypeID: ua.NewTwoByteNodeID(33), IncludeSubtypes: true, ResultMask: 63}},
	})
	found := slices.ContainsFunc(b.Results[0].References, func(r *ua.ReferenceDescription) bool {
		return r.NodeID.NodeID.String() == plantID(name).String()
	})
	tr := must[*ua.TranslateBrowsePathsToNodeIDsResponse](p, &ua.TranslateBrowsePathsToNodeIDsRequest{BrowsePaths: []*ua.BrowsePath{
		pathOf("Devices", device, name[len(device)+1:]),
	}})
	if got := tr.Results[0].StatusCode == ua.StatusGood; got != found {
		p.t.Errorf("%s: browsing says %v, its path %v", name, found, tr.Results[0].StatusCode)
	}
	return found
}

// lines is a log that is read while it is written.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

// with returns the lines that hold a text.
func (l *lines) with(text string) (found []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for line := range strings.Lines(l.b.String()) {
		if strings.Contains(line, text) {
			found = append(found, strings.TrimSpace(line))
		}
	}
	return found
}

// TestLogOfUsers: who connected, who was refused, who wrote what; and no password.
func TestLogOfUsers(t *testing.T) {
	var log lines
	f := guarded(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	f.try(t, "eve\nmallory", "top secret", nil)
	p, code := f.try(t, "anna", "open sesame", nil)
	if code != ua.StatusGood {
		t.Fatal(code)
	}
	write := func(name string, v any) {
		must[*ua.WriteResponse](p, writeOf(name, v))
	}
	write("boiler.code", int16(5))
	write("boiler.code", int16(7))
	write("boiler.counter", uint32(1))
	must[*ua.CloseSessionResponse](p, &ua.CloseSessionRequest{DeleteSubscriptions: true})
	for _, row := range []struct{ line, want string }{
		{"session not activated", `user="eve\nmallory" from=127.0.0.1`},
		{"session not activated", `why="wrong user name or password"`},
		{"session activated", "user=anna from=127.0.0.1"},
		{"session ended", "user=anna"},
		{"msg=write", `node="ns=2;s=boiler.code" old=0 new=5 status=Good user=anna`},
		{"msg=write", `node="ns=2;s=boiler.code" old=5 new=7 status=Good user=anna`},
		{"msg=write", `node="ns=2;s=boiler.counter" old=0 new=1 status=BadNotWritable user=anna`},
	} {
		found := false
		for end := time.Now().Add(10 * time.Second); !found && time.Now().Before(end); time.Sleep(time.Millisecond) {
			found = slices.ContainsFunc(log.with(row.line), func(s string) bool { return strings.Contains(s, row.want) })
		}
		if !found {
			t.Errorf("no line %s with %s in %q", row.line, row.want, log.with(""))
		}
	}
	for _, password := range []string{"top secret", "open sesame"} {
		if l := log.with(password); l != nil {
			t.Errorf("C5 a password is in the log: %q", l)
		}
	}
}

// TestWritesDoNotFillTheLog: a client that writes all the time gets its share of lines, and is told to have written more.
func TestWritesDoNotFillTheLog(t *testing.T) {
	var log lines
	f := start(t, func(c *Config) { c.Log = slog.New(slog.NewTextHandler(&log, nil)) })
	noisy, quiet := f.login(t), f.login(t)
	many := &ua.WriteRequest{}
	for range 5 * maxWritten {
		many.NodesToWrite = append(many.NodesToWrite, writeOf("boiler.code", int16(5)).NodesToWrite...)
	}
	must[*ua.WriteResponse](noisy, many)
	must[*ua.WriteResponse](quiet, writeOf("boiler.code", int16(99)))
	for end := time.Now().Add(10 * time.Second); len(log.with("new=99")) == 0; time.Sleep(time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("the write of the quiet client is not in the log")
		}
	}
	if n := len(log.with("new=5")); n > maxWritten {
		t.Errorf("%d lines of the noisy one", n)
	}
}

// TestEveryPolicyWithEveryToken: gopcua's client on each policy and mode with each kind of token, those of deprecated policies
// too. What a wrong token gives is told apart from what a right one gives (TestUserNames and TestUserCertificates have the
// rest).
func TestEveryPolicyWithEveryToken(t *testing.T) {
	f := guarded(t, func(c *Config) {
		c.Anonymous = mayLook
		c.Policies = []channel.Policy{none}
		for _, uri := range []string{
			ua.SecurityPolicyURIBasic256Sha256, ua.SecurityPolicyURIAes128Sha256RsaOaep, ua.SecurityPolicyURIAes256Sha256RsaPss,
			ua.SecurityPolicyURIBasic256, ua.SecurityPolicyURIBasic128Rsa15,
		} {
			c.Policies = append(c.Policies, channel.Policy{URI: uri, Modes: []ua.MessageSecurityMode{ua.MessageSecurityModeSign, ua.MessageSecurityModeSignAndEncrypt}})
		}
	})
	ctx, stop := context.WithTimeout(t.Context(), time.Minute)
	defer stop()
	endpoints, err := opcua.GetEndpoints(ctx, "opc.tcp://"+f.addr)
	if err != nil {
		t.Fatal(err)
	}
	if len(endpoints) != 11 {
		t.Fatalf("%d endpoints, want 11", len(endpoints))
	}
	me, carl, stranger := uatest.ClientIdentity(t), carl(t), uatest.NewIdentity(t, uatest.Key(t, 2048, 0), nil, nil)
	for _, ep := range endpoints {
		for _, row := range []struct {
			name    string
			kind    ua.UserTokenType
			options []opcua.Option
			want    ua.StatusCode // of the log-in
			write   ua.StatusCode
		}{
			{"anonymous", ua.UserTokenTypeAnonymous, nil, ua.StatusGood, ua.StatusBadUserAccessDenied},
			{"user name", ua.UserTokenTypeUserName, []opcua.Option{opcua.AuthUsername("anna", "open sesame")}, ua.StatusGood, ua.StatusGood},
			{"wrong password", ua.UserTokenTypeUserName, []opcua.Option{opcua.AuthUsername("anna", "guess")}, ua.StatusBadIdentityTokenRejected, 0},
			{"certificate", ua.UserTokenTypeCertificate, []opcua.Option{opcua.AuthCertificate(carl.DER), opcua.AuthPrivateKey(carl.Key)}, ua.StatusGood, ua.StatusBadUserAccessDenied},
			{"unknown certificate", ua.UserTokenTypeCertificate, []opcua.Option{opcua.AuthCertificate(stranger.DER), opcua.AuthPrivateKey(stranger.Key)}, ua.StatusBadIdentityTokenRejected, 0},
			{"wrong key", ua.UserTokenTypeCertificate, []opcua.Option{opcua.AuthCertificate(carl.DER), opcua.AuthPrivateKey(stranger.Key)}, ua.StatusBadUserSignatureInvalid, 0},
		} {
			if ep.SecurityMode == ua.MessageSecurityModeNone && row.kind == ua.UserTokenTypeCertificate {
				continue // this client signs by the channel's policy alone; node-opcua shows it
			}
			name := ep.SecurityPolicyURI + " " + ep.SecurityMode.String() + " " + row.name
			options := append([]opcua.Option{
				opcua.SecurityFromEndpoint(ep, row.kind), opcua.AutoReconnect(false), opcua.ApplicationURI("urn:test:client"),
				opcua.Certificate(me.DER), opcua.PrivateKey(me.Key),
			}, row.options...)
			c, err := opcua.NewClient(ep.EndpointURL, options...)
			if err != nil {
				t.Fatal(err)
			}
			if err := c.Connect(ctx); row.want != ua.StatusGood || err != nil {
				if !errors.Is(err, row.want) {
					t.Errorf("%s: %v, want %v", name, err, row.want)
				}
				continue
			}
			if r, err := c.Write(ctx, writeOf("boiler.code", int16(3))); err != nil || r.Results[0] != row.write {
				t.Errorf("%s: write: %v %v", name, r, err)
			}
			c.Close(ctx)
		}
		f.door = session.NewDoor() // nobody is to be locked out by the rows before
	}
}
