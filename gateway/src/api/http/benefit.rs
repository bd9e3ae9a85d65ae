//! `/v1/benefit`: what advice does to transfers, by what hosts reported.

use axum::extract::State;
use axum::http::Uri;

use super::parameters::Parameters;
use super::problem::Problem;
use super::shared::SharedJson;
use crate::api::Api;

pub(super) async fn benefit(State(api): State<Api>, uri: Uri) -> Result<SharedJson, Problem> {
    Parameters::parse(&uri, &[])?;
    let also = api.clone();
    SharedJson::of(&api.shared.costly.benefit, move || also.shared.reports.benefit_document()).await
}
