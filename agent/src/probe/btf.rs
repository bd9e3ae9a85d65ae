//! Types of the kernel as it describes them (BTF, `Documentation/bpf/btf.rst`): members of structures and parameters of functions, no more.
//! A module's own follow those of the kernel that it refers to.

/// A description of types, as `/sys/kernel/btf` has it.
pub(crate) struct Types {
    /// The kernel's, then a module's.
    parts: Vec<Part>,
}

struct Part {
    data: Vec<u8>,
    /// Where names begin, and how long they are together.
    names: (usize, usize),
    /// Where the description of each type begins.
    types: Vec<usize>,
}

/// A member of a structure.
#[derive(Clone, Debug, Eq, PartialEq)]
pub(crate) struct Member {
    pub(crate) name: String,
    /// Where it begins, in bits.
    pub(crate) at: u32,
    /// How long it is, in bits.
    pub(crate) bits: u32,
}

/// The machine's order of bytes.
const MAGIC: [u8; 2] = 0xeb9f_u16.to_ne_bytes();
const TYPE_BYTES: usize = 12;

const INT: u32 = 1;
const POINTER: u32 = 2;
const ARRAY: u32 = 3;
const STRUCT: u32 = 4;
const TYPEDEF: u32 = 8;
const VOLATILE: u32 = 9;
const CONST: u32 = 10;
const RESTRICT: u32 = 11;
const FUNCTION: u32 = 12;
const FUNCTION_PROTOTYPE: u32 = 13;
const TYPE_TAG: u32 = 18;

/// References that are followed, at most: none in a description that is whole leads back to itself.
const MOST_STEPS: usize = 16;

/// One type's head.
#[derive(Clone, Copy)]
struct Head {
    name: u32,
    kind: u32,
    /// Members, parameters or values that follow.
    count: usize,
    /// Whether members have their length in their place.
    has_bit_fields: bool,
    /// Bytes, or the type that it refers to.
    size_or_type: u32,
}

fn word(data: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_ne_bytes(*data.get(at..)?.first_chunk()?))
}

fn index(number: u32) -> Option<usize> {
    usize::try_from(number).ok()
}

fn head(data: &[u8], at: usize) -> Option<Head> {
    let info = word(data, at + 4)?;
    Some(Head {
        name: word(data, at)?,
        kind: info >> 24 & 0x1f,
        count: index(info & 0xffff)?,
        has_bit_fields: info >> 31 == 1,
        size_or_type: word(data, at + 8)?,
    })
}

impl Part {
    fn read(data: Vec<u8>) -> Option<Self> {
        if data.get(..2)? != MAGIC {
            return None;
        }
        let [start, type_at, type_bytes, name_at, name_bytes] =
            [4, 8, 12, 16, 20].map(|at| word(&data, at).and_then(index));
        let start = start?;
        let (mut at, names) = (start.checked_add(type_at?)?, (start.checked_add(name_at?)?, name_bytes?));
        let end = at.checked_add(type_bytes?)?;
        let mut types = Vec::new();
        while at < end {
            types.push(at);
            let head = head(&data, at)?;
            at += TYPE_BYTES + following(head)?;
        }
        Some(Self { data, names, types })
    }
}

/// Bytes that follow a type's head.
fn following(head: Head) -> Option<usize> {
    Some(match head.kind {
        // A variable, a tag of a declaration.
        INT | 14 | 17 => 4,
        ARRAY => 12,
        // Also a union, a section, an enumeration of 64 bits.
        STRUCT | 5 | 15 | 19 => 12 * head.count,
        FUNCTION_PROTOTYPE | 6 => 8 * head.count,
        // Also a forward declaration, a floating-point number.
        POINTER | TYPEDEF | VOLATILE | CONST | RESTRICT | FUNCTION | TYPE_TAG | 7 | 16 => 0,
        _ => return None,
    })
}

impl Types {
    /// Reads the kernel's, and a module's; `None` where they are not as they should be.
    pub(crate) fn read(kernel: Vec<u8>, module: Option<Vec<u8>>) -> Option<Self> {
        let parts = std::iter::once(kernel).chain(module).map(Part::read).collect::<Option<_>>()?;
        Some(Self { parts })
    }

    /// The part that a type is in and its head; numbers begin at 1, and a module's go on from the kernel's.
    fn find(&self, number: u32) -> Option<(&Part, usize, Head)> {
        let mut number = index(number)?.checked_sub(1)?;
        for part in &self.parts {
            if let Some(at) = part.types.get(number) {
                return Some((part, *at, head(&part.data, *at)?));
            }
            number -= part.types.len();
        }
        None
    }

    fn name(&self, offset: u32) -> Option<&str> {
        let mut offset = index(offset)?;
        for part in &self.parts {
            let (begin, length) = part.names;
            if offset < length {
                let bytes = part.data.get(begin..begin.checked_add(length)?)?.get(offset..)?;
                let end = bytes.iter().position(|byte| *byte == 0)?;
                return std::str::from_utf8(bytes.get(..end)?).ok();
            }
            offset -= length;
        }
        None
    }

    /// The one of this kind and name.
    fn named(&self, kind: u32, name: &str) -> Option<(&Part, usize, Head)> {
        self.parts.iter().find_map(|part| {
            part.types.iter().find_map(|at| {
                let head = head(&part.data, *at)?;
                (head.kind == kind && self.name(head.name) == Some(name)).then_some((part, *at, head))
            })
        })
    }

    /// Bytes of a type.
    fn size(&self, mut number: u32) -> Option<u32> {
        let mut elements = 1_u32;
        for _ in 0..MOST_STEPS {
            let (part, at, head) = self.find(number)?;
            number = match head.kind {
                POINTER => return elements.checked_mul(8),
                ARRAY => {
                    elements = elements.checked_mul(word(&part.data, at + TYPE_BYTES + 8)?)?;
                    word(&part.data, at + TYPE_BYTES)?
                }
                TYPEDEF | VOLATILE | CONST | RESTRICT | TYPE_TAG => head.size_or_type,
                _ => return elements.checked_mul(head.size_or_type),
            };
        }
        None
    }

    /// The members of a structure.
    pub(crate) fn members(&self, structure: &str) -> Option<Vec<Member>> {
        let (part, at, head) = self.named(STRUCT, structure)?;
        let member = |index: usize| {
            let at = at + TYPE_BYTES + 12 * index;
            let (name, number, place) = (word(&part.data, at)?, word(&part.data, at + 4)?, word(&part.data, at + 8)?);
            let (place, bits) = if head.has_bit_fields { (place & 0x00ff_ffff, place >> 24) } else { (place, 0) };
            // Of a whole field the length is its type's.
            let bits = if bits == 0 { self.size(number)?.checked_mul(8)? } else { bits };
            Some(Member { name: self.name(name)?.to_owned(), at: place, bits })
        };
        (0..head.count).map(member).collect()
    }

    /// What a function takes: the name of each parameter's type, or of that which it points to.
    pub(crate) fn parameters(&self, function: &str) -> Option<Vec<String>> {
        let (_, _, function) = self.named(FUNCTION, function)?;
        let (part, at, prototype) = self.find(function.size_or_type)?;
        if prototype.kind != FUNCTION_PROTOTYPE {
            return None;
        }
        let parameter = |index: usize| self.pointed_at(word(&part.data, at + TYPE_BYTES + 8 * index + 4)?);
        (0..prototype.count).map(parameter).collect()
    }

    fn pointed_at(&self, mut number: u32) -> Option<String> {
        for _ in 0..MOST_STEPS {
            let (_, _, head) = self.find(number)?;
            match head.kind {
                POINTER | VOLATILE | CONST | RESTRICT | TYPE_TAG => number = head.size_or_type,
                _ => return self.name(head.name).map(str::to_owned),
            }
        }
        None
    }
}

#[cfg(test)]
pub(crate) mod tests {
    use super::*;

    /// A description that is made up: types by number, and the names that they refer to.
    pub(crate) struct Made {
        types: Vec<u8>,
        names: Vec<u8>,
        /// What the kernel's names take, where this is a module's.
        before: u32,
    }

    impl Made {
        /// One that refers to names from here on; none where it is the kernel's.
        pub(crate) fn after(before: u32) -> Self {
            Self { types: Vec::new(), names: if before == 0 { vec![0] } else { Vec::new() }, before }
        }

        pub(crate) fn name_bytes(&self) -> u32 {
            u32::try_from(self.names.len()).unwrap()
        }

        pub(crate) fn name(&mut self, name: &str) -> u32 {
            let at = self.before + self.name_bytes();
            self.names.extend(name.bytes().chain([0]));
            at
        }

        /// A type, with what follows its head.
        pub(crate) fn add(&mut self, name: u32, kind: u32, count: u32, size_or_type: u32, rest: &[u32]) {
            for word in [name, kind << 24 | count, size_or_type].iter().chain(rest) {
                self.types.extend(word.to_ne_bytes());
            }
        }

        pub(crate) fn done(self) -> Vec<u8> {
            let (types, names) = (u32::try_from(self.types.len()).unwrap(), self.name_bytes());
            let mut data = [MAGIC.as_slice(), &[1, 0]].concat();
            data.extend([24, 0, types, types, names].into_iter().flat_map(u32::to_ne_bytes));
            [data, self.types, self.names].concat()
        }
    }

    #[test]
    fn a_module_goes_on_from_the_kernels_types_and_names() {
        let mut kernel = Made::after(0);
        let (number, sock) = (kernel.name("u32"), kernel.name("sock"));
        kernel.add(number, INT, 0, 4, &[32]); // 1
        kernel.add(sock, STRUCT, 0, 8, &[]); // 2
        let mut module = Made::after(kernel.name_bytes());
        let [pair, one, two, few, ask] = ["pair", "one", "two", "few", "ask"].map(|name| module.name(name));
        // An array of two of the kernel's numbers, and a bit field of one.
        module.add(0, ARRAY, 0, 0, &[1, 1, 2]); // 3
        module.add(pair, STRUCT, 3 | 1 << 31, 12, &[one, 1, 0, two, 3, 32, few, 1, 0x0300_0060]); // 4
        module.add(0, POINTER, 0, 2, &[]); // 5
        module.add(0, CONST, 0, 4, &[]); // 6
        module.add(0, POINTER, 0, 6, &[]); // 7
        module.add(0, FUNCTION_PROTOTYPE, 3, 0, &[0, 5, 0, 1, 0, 7]); // 8
        module.add(ask, FUNCTION, 1, 8, &[]); // 9
        let types = Types::read(kernel.done(), Some(module.done())).unwrap();
        let member = |name: &str, at, bits| Member { name: name.to_owned(), at, bits };
        assert_eq!(types.members("pair").unwrap(), [member("one", 0, 32), member("two", 32, 64), member("few", 96, 3)]);
        assert_eq!(types.parameters("ask").unwrap(), ["sock", "u32", "pair"]);
        assert_eq!((types.members("ask"), types.parameters("pair"), types.members("none")), (None, None, None));
    }

    #[test]
    fn what_is_no_description_of_types_is_refused_wherever_it_ends() {
        let mut kernel = Made::after(0);
        let (one, pair) = (kernel.name("one"), kernel.name("pair"));
        kernel.add(one, INT, 0, 4, &[32]);
        kernel.add(pair, STRUCT, 1, 4, &[one, 1, 0]);
        let whole = kernel.done();
        assert_eq!(Types::read(whole.clone(), None).unwrap().members("pair").unwrap().len(), 1);
        for end in 0..whole.len() {
            let cut = Types::read(whole[..end].to_vec(), None).and_then(|types| types.members("pair"));
            assert_eq!(cut, None, "{end} of {} bytes", whole.len());
        }
    }
}
