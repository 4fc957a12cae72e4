//! Types whose fields each restrict something, and restrict nothing until they are set.

/// Declares such a type: its fields with the values that restrict nothing, optional fields (`None`
/// restricts nothing), the constant that has them all, and for each field a method of its name that
/// sets it. Generated code is chains of these.
macro_rules! narrowed {
    (
        $(#[$doc:meta])* $name:ident;
        $(#[$all_doc:meta])* $all:ident;
        fields { $($(#[$field_doc:meta])* $field:ident: $type:ty = $free:expr,)* }
        optional { $($(#[$optional_doc:meta])* $optional:ident: $inner:ty,)* }
    ) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy)]
        pub struct $name {
            $($(#[$field_doc])* pub $field: $type,)*
            $($(#[$optional_doc])* pub $optional: Option<$inner>,)*
        }

        impl $name {
            $(#[$all_doc])*
            pub const $all: Self = Self { $($field: $free,)* $($optional: None,)* };

            $(
                $(#[$field_doc])*
                #[must_use]
                pub const fn $field(mut self, $field: $type) -> Self {
                    self.$field = $field;
                    self
                }
            )*

            $(
                $(#[$optional_doc])*
                #[must_use]
                pub const fn $optional(mut self, $optional: $inner) -> Self {
                    self.$optional = Some($optional);
                    self
                }
            )*
        }
    };
}
pub(crate) use narrowed;
